topic "Scales to generate with" \
  "An FP8 cache takes its scales from the checkpoint, from a \`kv_cache_scales.json\`, or is told to use 1.0; there is no silent fall-back."

SCALES='{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {"0": 0.04, "1": 0.05}}}}'
# Makes checkpoint/ from model/ with scales, and scales.json.
make_scales() {
  add_tokenizer
  kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output checkpoint
  printf '%s\n' "$SCALES" >scales.json
}

bad "An FP8 cache and no scales" <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --kv-cache-dtype fp8_e4m3
CASE

bad "Scales in only some layers" <<'CASE'
make_scales
edit_header checkpoint/model.safetensors 's/model.layers.1.self_attn.([kv])_scale/\1.rotary_emb.inv_freq/g'
$ kvcal generate checkpoint --prompt Hello
CASE

bad "A K scale without a V scale" <<'CASE'
make_scales
edit_header checkpoint/model.safetensors 's/model.layers.1.self_attn.v_scale/rotary_emb.inv_freq/g'
$ kvcal generate checkpoint --prompt Hello
CASE

bad "A scale of the wrong shape" <<'CASE'
make_scales
edit_header checkpoint/model.safetensors 's/("model.layers.1.self_attn.k_scale":\{"dtype":)"F32","shape":\[1\]/\1"U8","shape":[4]/'
$ kvcal generate checkpoint --prompt Hello
CASE

bad "A scale of zero in the checkpoint" <<'CASE'
make_scales
set_element checkpoint/model.safetensors model.layers.0.self_attn.k_scale 0 '\x00\x00\x00\x00'
$ kvcal generate checkpoint --prompt Hello
CASE

bad "No such scales file" <<'CASE'
add_tokenizer
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "Scales of another model" <<'CASE'
make_scales
sed -i 's/"llama"/"mistral"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "Scales of another dtype" <<'CASE'
make_scales
sed -i 's/"float8_e4m3fn"/"float8_e4m3fnuz"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "Scales of E5M2 for a cache of E4M3" <<'CASE'
make_scales
sed -i 's/"float8_e4m3fn"/"float8_e5m2"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json --kv-cache-dtype fp8_e4m3
CASE

bad "Scales that lack a layer" <<'CASE'
make_scales
sed -i 's/, "1": 0.05//' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "Scales that lack a rank" <<'CASE'
make_scales
sed -i 's/"scaling_factor": {"0"/"scaling_factor": {"1"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "A scale of zero" <<'CASE'
make_scales
sed -i 's/0.05/0.0/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "A scale that is text" <<'CASE'
make_scales
sed -i 's/0.05/"0.05"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

bad "A scales file without its values" <<'CASE'
make_scales
printf '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn"}}\n' >scales.json
$ kvcal generate model --prompt Hello --scales scales.json
CASE

topic "Statistics" "\`kvcal scales\` reads what \`calibrate --save-statistics\` kept."

bad "Statistics of a quantized forward" 2 <<'CASE'
# What later layers show there depends on the recipe.
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --save-statistics kept.safetensors
CASE

bad "Statistics that would replace a file" <<'CASE'
echo precious >kept.safetensors
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward exact --save-statistics kept.safetensors
CASE

bad "Statistics that are weights" <<'CASE'
$ kvcal scales --statistics model/model.safetensors --recipe recipe.yaml
CASE

bad "Statistics of another model" <<'CASE'
kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output old --kv-forward exact --reproducible --save-statistics kept.safetensors >/dev/null
sed -i 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 1e-3/' model/config.json
$ kvcal scales --statistics kept.safetensors --recipe recipe.yaml --model model --output out
CASE

bad "Statistics for an observer that judges attention" <<'CASE'
# Statistics hold K, V and queries value by value, but no attention.
kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output old --kv-forward exact --reproducible --save-statistics kept.safetensors >/dev/null
$ kvcal scales --statistics kept.safetensors --recipe fp8_kv_attention_mse --model model --output out
CASE

bad "Scales for no model" 2 <<'CASE'
$ kvcal scales --statistics kept.safetensors --recipe recipe.yaml --output out
CASE

bad "A cache type that is not FP8" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-cache-dtype bfloat16
CASE

bad "Scales of an NVFP4 cache in a form that has no word for it" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-cache-dtype nvfp4 --format quark
CASE

bad "Scales of an NVFP4 cache for heads that its blocks do not divide" <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-cache-dtype nvfp4
CASE

bad "Scales of a cache that makes its own" 2 <<'CASE'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-cache-dtype int8_per_token_head
CASE

bad "Statistics in the model's folder" <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite --kv-forward exact --save-statistics model/model.safetensors
CASE

bad "Statistics over the data set" <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --overwrite --kv-forward exact --save-statistics data.jsonl
CASE

bad "Statistics in the output" 2 <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward exact --save-statistics out/kept.safetensors
CASE

bad "Statistics that exist" <<'CASE'
add_tokenizer
touch kept.safetensors
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward exact --save-statistics kept.safetensors
CASE

bad "Statistics in a folder that is not there" <<'CASE'
add_tokenizer
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --kv-forward exact --save-statistics none/kept.safetensors
CASE
