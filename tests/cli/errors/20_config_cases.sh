topic "config.json" "Nothing is guessed: a key that decides what the model computes must be there and make sense."

bad "config.json is not JSON" <<'CASE'
edit_config 's/"vocab_size": 160,/"vocab_size": 160/'
CASE

bad "config.json is a list" <<'CASE'
echo '["llama"]' >model/config.json
CASE

bad "config.json is nested 10,000 levels deep" <<'CASE'
repeat 10000 '{"a":' >model/config.json
CASE

bad "config.json has a key twice" <<'CASE'
edit_config 's/("hidden_size": 48,)/\1 \1/'
CASE

bad "A missing key" <<'CASE'
edit_config '/"num_hidden_layers"/d'
CASE

bad "A key of the wrong type" <<'CASE'
edit_config 's/"hidden_size": 48/"hidden_size": "48"/'
CASE

bad "A size of zero" <<'CASE'
edit_config 's/"vocab_size": 160/"vocab_size": 0/'
CASE

bad "An absurd size" <<'CASE'
edit_config 's/"num_hidden_layers": 2/"num_hidden_layers": 2000000000/'
CASE

bad "KV heads that do not divide the heads" <<'CASE'
edit_config 's/"num_key_value_heads": 2/"num_key_value_heads": 4/'
CASE

bad "An unknown architecture" <<'CASE'
edit_config 's/"model_type": "llama"/"model_type": "lama"/'
CASE

bad "An architecture that is not supported" <<'CASE'
edit_config 's/"model_type": "llama"/"model_type": "mamba"/'
CASE

bad "No model_type" <<'CASE'
edit_config '/"model_type"/d'
CASE

bad "An unknown activation" <<'CASE'
edit_config 's/"hidden_act": "silu"/"hidden_act": "relu6"/'
CASE

bad "A longrope scaling without its factors" <<'CASE'
edit_config 's/"rope_scaling": null/"rope_scaling": {"rope_type": "longrope", "factor": 4.0}/'
CASE

bad "A rope scaling without its factor" <<'CASE'
edit_config 's/"rope_scaling": null/"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}/'
CASE

bad "A rope scaling that is a number" <<'CASE'
edit_config 's/"rope_scaling": null/"rope_scaling": 2.0/'
CASE

bad "An epsilon that erases every number" <<'CASE'
edit_config 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 1e39/'
CASE
