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
edit_header checkpoint/model.safetensors 's/model.layers.1.self_attn.([kv])_scale/model.layers.9.self_attn.\1_scale/g'
$ kvcal generate checkpoint --prompt Hello
CASE

bad "A K scale without a V scale" <<'CASE'
make_scales
edit_header checkpoint/model.safetensors 's/model.layers.1.self_attn.v_scale/model.layers.9.self_attn.v_scale/g'
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
sed -i 's/"float8_e4m3fn"/"float8_e5m2"/' scales.json
$ kvcal generate model --prompt Hello --scales scales.json
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
