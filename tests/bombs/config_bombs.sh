# Sizes that no model has.

config_bomb() { # config_bomb TITLE KEY VALUE: for a checkpoint, and for one that is to be made
  bomb "config.json with $1" config.json <<CASE
set_config $2 $3
$ kvcal inspect model
CASE
  bomb "synth of $1" config.json <<CASE
set_config $2 $3
$ kvcal synth out --config model/config.json
CASE
}
config_bomb "1,000,000 layers" num_hidden_layers 1000000
config_bomb "10^18 layers" num_hidden_layers 1000000000000000000
config_bomb "a hidden size of 2^40" hidden_size 1099511627776
config_bomb "a vocabulary of 2^62" vocab_size 4611686018427387904
config_bomb "2^63 heads" num_attention_heads 9223372036854775808
config_bomb "an MLP of 10^300" intermediate_size 1e300
config_bomb "2^62 positions" max_position_embeddings 4611686018427387904

bomb "config.json with 1,000,000,000 experts" config.json <<'CASE'
use_model mixtral
set_config num_local_experts 1000000000
$ kvcal inspect model
CASE

bomb "synth of 10,000 layers as wide as they may be" config.json <<'CASE'
set_config num_hidden_layers 10000
set_config hidden_size 1048576
set_config num_attention_heads 8192
set_config num_key_value_heads 8192
sed -i '/"head_dim"/d' model/config.json
$ kvcal synth out --config model/config.json
CASE

bomb "synth of 1,000,000,000 experts" config.json <<'CASE'
use_model mixtral
set_config num_local_experts 1000000000
$ kvcal synth out --config model/config.json
CASE

bomb "config.json with as many layers and experts as are allowed" model <<'CASE'
use_model mixtral
set_config num_local_experts 26
set_config num_hidden_layers 10000
$ kvcal inspect model
CASE

bomb "1,000,000 layer_types" config.json <<'CASE'
{ printf '{"layer_types": ["full_attention"'; many 1000000 ',"full_attention"'; printf '],'; tail -c +2 model/config.json; } >config
mv config model/config.json
$ kvcal inspect model
CASE

bomb "1,000,000 patterns of modules that stay 16 bits" config.json <<'CASE'
{ printf '{"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}, "ignore": ["lm_head"'
  many 1000000 ',"re:.*a"'; printf ']},'; tail -c +2 model/config.json; } >config
mv config model/config.json
$ kvcal inspect model
CASE

bomb "A pattern in config.json that backtracks" model <<'CASE'
rm -r model
cp -r --no-preserve=mode "$SOURCE_FOLDER/tests/fixtures/fp8/static_kv" model
sed -i 's/"Linear"/"re:(([a-z._0-9]+)+)+!$"/' model/config.json
$ kvcal inspect model
CASE
