topic "Weights without a model" \
  "\`quantize\` knows names and shapes alone, of any architecture."

bad "An unknown scheme of weights" 2 <<'CASE'
$ kvcal quantize model --scheme W4A61 --output out
CASE

bad "A scheme by another name" 2 <<'CASE'
$ kvcal quantize model --scheme INT4 --output out
CASE

bad "Static inputs without data" 2 <<'CASE'
$ kvcal quantize model --scheme FP8 --output out
CASE

bad "A global scale of inputs without data" 2 <<'CASE'
$ kvcal quantize model --scheme NVFP4 --output out
CASE

bad "A scheme that quantizes nothing" 2 <<'CASE'
$ kvcal quantize model --scheme UNQUANTIZED --output out
CASE

bad "No scheme" 2 <<'CASE'
$ kvcal quantize model --output out
CASE

bad "A name to ignore that no module has" <<'CASE'
$ kvcal quantize model --scheme FP8_DYNAMIC --ignore model.layers.0.mlp.up_prj --output out
CASE

bad "A pattern to ignore that matches nothing" <<'CASE'
$ kvcal quantize model --scheme FP8_DYNAMIC --ignore 're:.*expert' --output out
CASE

bad "A pattern to ignore that is none" <<'CASE'
$ kvcal quantize model --scheme FP8_DYNAMIC --ignore 're:(' --output out
CASE

bad "Everything is ignored" <<'CASE'
$ kvcal quantize model --scheme FP8_DYNAMIC --ignore 're:.*' --output out
CASE

bad "Inputs that are no whole groups" <<'CASE'
$ kvcal quantize model --scheme W4A16 --output out
CASE

bad "A checkpoint that is quantized already" <<'CASE'
kvcal quantize model --scheme FP8_DYNAMIC --output once
$ kvcal quantize once --scheme FP8_DYNAMIC --output out
CASE

bad "A checkpoint that only its weights tell to be quantized" <<'CASE'
kvcal quantize model --scheme FP8_DYNAMIC --output once
cp model/config.json once/config.json
$ kvcal quantize once --scheme FP8_DYNAMIC --output out
CASE

bad "A checkpoint that ModelOpt quantized" <<'CASE'
echo '{}' >model/hf_quant_config.json
$ kvcal quantize model --scheme FP8_DYNAMIC --output out
CASE

bad "An output in the source" <<'CASE'
$ kvcal quantize model --scheme FP8_DYNAMIC --output model/out
CASE

bad "An output that exists" <<'CASE'
mkdir out
$ kvcal quantize model --scheme FP8_DYNAMIC --output out
CASE

bad "NaN in a weight to quantize" <<'CASE'
set_element model/model.safetensors model.layers.1.self_attn.v_proj.weight 5 '\x00\x7e'
$ kvcal quantize model --scheme W8A8 --output out
CASE

bad "Infinity in a weight to quantize" <<'CASE'
set_element model/model.safetensors model.layers.0.mlp.up_proj.weight 5 '\x00\x7c'
$ kvcal quantize model --scheme NVFP4A16 --output out
CASE
