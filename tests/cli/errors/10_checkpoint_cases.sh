topic "Model folders and checkpoint files" \
  "Headers of safetensors files are checked as the format's own reader does, before anything is read."

bad "The model folder does not exist" <<'CASE'
$ kvcal calibrate modle --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "An id of the hub without a network" <<'CASE'
# HF_HUB_OFFLINE is set. docs/hub.md lists what the hub itself may answer.
$ kvcal calibrate owner/name@main --output out
CASE

bad "The model is a file" <<'CASE'
# The path of the weights was given, not their folder.
$ kvcal calibrate model/model.safetensors --recipe recipe.yaml --dataset data.jsonl --output out
CASE

bad "No config.json" <<'CASE'
rm model/config.json
CASE

bad "No weights" <<'CASE'
rm model/model.safetensors
CASE

bad "Weights only as pytorch_model.bin" <<'CASE'
# Pickle files can run code and are never read.
mv model/model.safetensors model/pytorch_model.bin
CASE

bad "A git LFS pointer in place of the weights" <<'CASE'
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 103960\n' >model/model.safetensors
CASE

bad "Weights that end early" <<'CASE'
# The download stopped; the header promises more data than the file holds.
truncate -s 50000 model/model.safetensors
CASE

bad "Weights with bytes after the last tensor" <<'CASE'
printf garbage >>model/model.safetensors
CASE

bad "An empty weights file" <<'CASE'
: >model/model.safetensors
CASE

bad "A header length of 2^60 bytes" <<'CASE'
{ le64 $((1 << 60)); printf '{}'; } >model/model.safetensors
CASE

bad "A header of more than 100 MB" <<'CASE'
# The file is large enough for it; the format forbids it.
{ le64 100000001; printf '{}'; } >model/model.safetensors
truncate -s 100000100 model/model.safetensors
CASE

bad "A header longer than its file" <<'CASE'
{ le64 4096; printf '{}'; } >model/model.safetensors
CASE

bad "A header that is not JSON" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":F16}}' 0
CASE

bad "A header nested 10,000 levels deep" <<'CASE'
write_safetensors model/model.safetensors "{\"a\":$(repeat 10000 '[')" 0
CASE

bad "A header that names a tensor twice" <<'CASE'
entry='"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}'
write_safetensors model/model.safetensors "{$entry,$entry}" 4
CASE

bad "Tensors that overlap" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[4],"data_offsets":[4,12]}}' 12
CASE

bad "A hole between tensors" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[4],"data_offsets":[16,24]}}' 24
CASE

bad "Negative offsets" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F16","shape":[4],"data_offsets":[-8,0]}}' 8
CASE

bad "Offsets beyond the file" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,18446744073709551615]}}' 8
CASE

bad "A shape whose size overflows 64 bits" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"F16","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}' 8
CASE

bad "A shape that does not fit the bytes" <<'CASE'
edit_header model/model.safetensors '/self_attn.k_proj/s/("model.layers.0.self_attn.k_proj.weight":\{"dtype":"F16","shape":\[)16/\132/'
CASE

bad "An unknown dtype" <<'CASE'
write_safetensors model/model.safetensors '{"a":{"dtype":"FP16","shape":[4],"data_offsets":[0,8]}}' 8
CASE

bad "An index that names a missing shard" <<'CASE'
use_model mistral_window
rm model/model-00002-of-00002.safetensors
CASE

bad "An index that leads out of the folder" <<'CASE'
use_model mistral_window
cp model/model-00002-of-00002.safetensors secret.safetensors
sed -i 's#"model-00002-of-00002.safetensors"#"../secret.safetensors"#' model/model.safetensors.index.json
CASE

bad "An index that puts a tensor into the wrong shard" <<'CASE'
use_model mistral_window
sed -E -i 's#("lm_head.weight": "model-0000)[12]#\12#; s#("model.norm.weight": "model-0000)[12]#\11#' model/model.safetensors.index.json
CASE

bad "An index without weight_map" <<'CASE'
use_model mistral_window
printf '{"metadata": {"total_size": 1}}' >model/model.safetensors.index.json
CASE

bad "Shards without an index" <<'CASE'
use_model mistral_window
rm model/model.safetensors.index.json
CASE

bad "Both one file and an index" <<'CASE'
use_model mistral_window
cp model/model-00001-of-00002.safetensors model/model.safetensors
CASE

bad "A named pipe in place of the weights" <<'CASE'
# It would block whoever opens it.
rm model/model.safetensors
mkfifo model/model.safetensors
CASE
