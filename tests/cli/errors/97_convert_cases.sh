topic "Conversions" \
  "\`convert\` and \`apply\` change the form of scales, never their meaning without a word; what cannot be kept is refused."

# Makes checkpoint/ from model/ as recipe.yaml says.
make_checkpoint() {
  kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --device reference --output checkpoint
}

# Makes overlay/ with the scales of checkpoint/.
make_overlay() {
  make_checkpoint
  kvcal convert checkpoint --format compressed-tensors --scales-only --output overlay
}

# Writes scales.json for $1 ranks of model/.
make_rank_scales() {
  local rank ranks=""
  for ((rank = 0; rank < $1; rank++)); do
    ranks+="${ranks:+, }\"$rank\": {\"0\": 0.04, \"1\": 0.05}"
  done
  printf '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {%s}}}\n' "$ranks" >scales.json
}

bad "Nothing to convert" <<'CASE'
$ kvcal convert model --format tgi --output out
CASE

bad "A model card that is a folder" <<'CASE'
make_checkpoint
rm checkpoint/README.md
mkdir checkpoint/README.md
$ kvcal convert checkpoint --format tgi --output out
CASE

bad "No form to convert to" 2 <<'CASE'
$ kvcal convert model --output out
CASE

bad "An unknown form to convert to" 2 <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format modelop --output out
CASE

bad "A form given twice" 2 <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format tgi --format tgi --output out
CASE

bad "A form joined with itself" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format tgi+modelopt+tgi --output out
CASE

bad "Forms that do not fit into one folder" <<'CASE'
# Both have a quantization_config, and readers take only the one they know.
make_checkpoint
$ kvcal convert checkpoint --format compressed-tensors+quark --output out
CASE

bad "FP8 weights in two forms in one folder" <<'CASE'
cp "$SOURCE_FOLDER/recipes/fp8_w8a8_kv.yaml" recipe.yaml
make_checkpoint
$ kvcal convert checkpoint --format fp8+modelopt --output out
CASE

bad "A conversion into its source" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format tgi --output checkpoint/tgi
CASE

bad "A conversion over its source" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format tgi --output checkpoint --overwrite
CASE

bad "A conversion over the checkpoint that its scales are from" <<'CASE'
make_checkpoint
$ kvcal convert model --scales checkpoint --format tgi --output checkpoint --overwrite
CASE

bad "A conversion to a folder that exists" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format tgi --output model
CASE

bad "Scales of E4M3FNUZ in a form that has none" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format modelopt --fp8-dialect fnuz --output out
CASE

bad "Scales of E4M3FNUZ in a file that has none" <<'CASE'
make_checkpoint
kvcal convert checkpoint --format tgi --fp8-dialect fnuz --output fnuz
$ kvcal convert fnuz --format scales-json --output out
CASE

bad "An unknown dialect" 2 <<'CASE'
$ kvcal convert model --format tgi --fp8-dialect ocp --output out
CASE

bad "quant_method fp8 for 16-bit weights" <<'CASE'
make_checkpoint
$ kvcal convert checkpoint --format fp8 --output out
CASE

bad "FP8 weights with a scale a channel, which fp8 does not have" <<'CASE'
cp "$SOURCE_FOLDER/recipes/fp8_dynamic_kv.yaml" recipe.yaml
make_checkpoint
$ kvcal convert checkpoint --format fp8 --output out
CASE

bad "Weights of four bits to another form" <<'CASE'
cp -r --no-preserve=mode "$MODELS/../fp8/weights_only" four_bits
edit_config 's/"num_bits": 8/"num_bits": 4/; s/"type": "float"/"type": "int"/; s/"naive-quantized"/"pack-quantized"/' four_bits/config.json
$ kvcal convert four_bits --format modelopt --output out
CASE

bad "An overlay of a checkpoint whose weights change" <<'CASE'
cp "$SOURCE_FOLDER/recipes/fp8_w8a8_kv.yaml" recipe.yaml
make_checkpoint
$ kvcal convert checkpoint --format modelopt --scales-only --output out
CASE

bad "An ignored layer in a form that needs every layer" <<'CASE'
sed -i 's/      kv_cache_scheme:/      ignore: [model.layers.1.self_attn]\n&/' recipe.yaml
make_checkpoint
$ kvcal convert checkpoint --format scales-json --output out
CASE

bad "A layer without its scale to convert" <<'CASE'
make_checkpoint
edit_header checkpoint/model.safetensors 's/model.layers.1.self_attn.([kv])_scale/\1.rotary_emb.inv_freq/g'
$ kvcal convert checkpoint --format tgi --output out
CASE

bad "A scale of NaN to convert" <<'CASE'
make_checkpoint
set_element checkpoint/model.safetensors model.layers.0.self_attn.v_scale 1 '\xc0\x7f'
$ kvcal convert checkpoint --format tgi --output out
CASE

bad "Scales from nowhere" <<'CASE'
$ kvcal convert model --scales scales.json --format tgi --output out
CASE

bad "Scales from a checkpoint that has none" <<'CASE'
cp -r model plain
$ kvcal convert model --scales plain --format tgi --output out
CASE

bad "Scales from another model's file" <<'CASE'
make_rank_scales 1
sed -i 's/"llama"/"mistral"/' scales.json
$ kvcal convert model --scales scales.json --format tgi --output out
CASE

bad "Scales from another model's checkpoint" <<'CASE'
make_checkpoint
use_model mistral_window
$ kvcal convert model --scales checkpoint --format tgi --output out
CASE

bad "Ranks that do not divide the heads" <<'CASE'
# The model has two KV heads.
make_rank_scales 3
$ kvcal convert model --scales scales.json --format compressed-tensors --strategy attn_head --output out
CASE

bad "Heads that do not divide into ranks" <<'CASE'
make_rank_scales 2
kvcal convert model --scales scales.json --format compressed-tensors --strategy attn_head --output checkpoint
$ kvcal convert checkpoint --format scales-json --tp-size 3 --output out
CASE

bad "A strategy for scales of queries" <<'CASE'
cp -r --no-preserve=mode "$MODELS/../fp8/attention" attention
$ kvcal convert attention --format compressed-tensors --strategy tensor --output out
CASE

bad "A rank file that is missing" <<'CASE'
cp -r --no-preserve=mode "$MODELS/../rank_scales/npz_tp2" ranks
rm ranks/llama_tp2_rank1.npz
$ kvcal convert model --scales ranks --format tgi --output out
CASE

bad "Rank files of a deeper model" <<'CASE'
cp -r --no-preserve=mode "$MODELS/../rank_scales/tp2_pp2" ranks
$ kvcal convert model --scales ranks --format tgi --output out
CASE

bad "A rank file that is compressed" <<'CASE'
cp -r --no-preserve=mode "$MODELS/../rank_scales/npz_compressed" ranks
$ kvcal convert model --scales ranks --format tgi --output out
CASE

bad "An overlay that is none" <<'CASE'
make_checkpoint
$ kvcal apply checkpoint model --output out
CASE

bad "An overlay whose description is broken" <<'CASE'
make_overlay
truncate -s 40 overlay/kvcal_overlay.json
$ kvcal apply overlay model --output out
CASE

bad "An overlay of a form that is not known" <<'CASE'
make_overlay
sed -i 's/"format": "compressed-tensors"/"format": "compressed"/' overlay/kvcal_overlay.json
$ kvcal apply overlay model --output out
CASE

bad "An overlay whose scales were lost" <<'CASE'
make_overlay
rm overlay/model-kv-scales.safetensors
$ kvcal apply overlay model --output out
CASE

bad "An overlay of another model" <<'CASE'
make_overlay
use_model mistral_window
$ kvcal apply overlay model --output out
CASE

bad "An overlay on a checkpoint that has scales" <<'CASE'
make_overlay
$ kvcal apply overlay checkpoint --output out
CASE

bad "An overlay put into the checkpoint's folder" <<'CASE'
# apply writes a checkpoint of its own; files of an overlay may be copied into a sharded checkpoint's folder.
make_overlay
$ kvcal apply overlay model --output model --overwrite
CASE

bad "An overlay put over itself" <<'CASE'
make_overlay
$ kvcal apply overlay model --output overlay --overwrite
CASE
