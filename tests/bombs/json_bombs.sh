# JSON that nests or swells.

deep_file() { # deep_file FILE COMMAND
  bomb "1,000,000 levels of JSON in $1" "$1" <<CASE
use_text hi
[[ $1 == *index* ]] && rm model/model.safetensors
many 1000000 '[' >model/$1
$ $2
CASE
}
deep_file config.json "$CALIBRATE"
deep_file model.safetensors.index.json "$CALIBRATE"
deep_file tokenizer.json "$CALIBRATE"
deep_file tokenizer_config.json "$CALIBRATE"
deep_file generation_config.json 'kvcal generate model --prompt hi'

bomb "1,000,000 levels of JSON in a record" data.jsonl <<'CASE'
{ printf '{"messages": '; many 1000000 '[{"a":'; echo; } >data.jsonl
CASE

bomb "1,000,000 levels of objects in a .json data set" data.json <<'CASE'
many 1000000 '{"a":' >data.json
$ kvcal calibrate model --recipe recipe.yaml --dataset data.json --output out
CASE

bomb "20,000,000 values in config.json" config.json <<'CASE'
{ printf '{"model_type": "llama", "a": [0'; many 8000000 ',0'; echo ']}'; } >model/config.json
CASE

bomb "A tokenizer.json of 10,000,000 merges" tokenizer.json <<'CASE'
use_text hi
{ printf '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"'; many 9999999 ',"a a"'; echo ']}}'; } >model/tokenizer.json
CASE

bomb "A tokenizer.json of 10,000,000 empty objects" tokenizer.json <<'CASE'
use_text hi
{ printf '{"added_tokens": [{}'; many 9999999 ',{}'; echo ']}'; } >model/tokenizer.json
CASE

bomb "A string of 250 MB in tokenizer.json" tokenizer.json <<'CASE'
use_text hi
{ printf '{"version": "'; head -c 250000000 /dev/zero | tr '\0' a; echo '"}'; } >model/tokenizer.json
CASE

bomb "An index of 1,000,000 shards" model.safetensors.index.json <<'CASE'
rm model/model.safetensors
{ printf '{"weight_map": {'; seq 1000000 | sed 's/.*/"t&":"model-&.safetensors"/' | paste -sd ,; echo '}}'; } >model/model.safetensors.index.json
CASE

bomb "An index of 3,000,000 tensors" model.safetensors.index.json <<'CASE'
rm model/model.safetensors
{ printf '{"weight_map": {'; seq -f '"t%.0f":"a.safetensors"' 3000000 | paste -sd ,; echo '}}'; } >model/model.safetensors.index.json
CASE

bomb "kv_cache_scales.json with layer 1,000,000,000" scales.json <<'CASE'
echo '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {"0": 1.0, "999999999": 1.0}}}}' >scales.json
$ kvcal convert model --scales scales.json --format compressed-tensors --output out
CASE

bomb "kv_cache_scales.json with 1,000,000 ranks" scales.json <<'CASE'
{ printf '{"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {'; seq -f '"%.0f":{"0":1.0,"1":1.0}' 0 999999 | paste -sd ,; echo '}}}'; } >scales.json
$ kvcal convert model --scales scales.json --format compressed-tensors --output out
CASE
