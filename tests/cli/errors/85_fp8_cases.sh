topic "FP8 checkpoints to run" \
  "What \`generate\`, \`eval\` and \`inspect\` do not read as an engine would is an error, never a silent difference."

# Replaces model/ by the FP8 checkpoint $1 of the fixtures, and makes ids.jsonl for it.
use_fp8() {
  rm -rf model
  cp -r --no-preserve=mode "$MODELS/../fp8/$1" model
  printf '{"input_ids": [3, 4, 5, 6, 7, 8]}\n' >ids.jsonl
}

bad "An FP8 checkpoint whose weights are packed" <<'CASE'
use_fp8 weights_only
edit_config 's/"naive-quantized"/"pack-quantized"/'
$ kvcal inspect model
CASE

bad "An FP8 checkpoint with rotations" <<'CASE'
use_fp8 weights_only
edit_config 's/"transform_config": \{\}/"transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A sparse checkpoint" <<'CASE'
use_fp8 weights_only
edit_config 's/"sparsity_config": \{\}/"sparsity_config": {"format": "sparse-24-bitmask"}/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A misspelt key of a config group" <<'CASE'
use_fp8 weights_only
edit_config 's/"strategy": "channel"/"strategi": "channel"/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A misspelt quant_method" <<'CASE'
use_fp8 weights_only
edit_config 's/"compressed-tensors"/"compressed_tensors"/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "16-bit weights that fp8 says are FP8" <<'CASE'
edit_config 's/"model_type"/"quantization_config": {"quant_method": "fp8"}, "model_type"/'
$ kvcal inspect model
CASE

bad "NaN in FP8 weights" <<'CASE'
use_fp8 weights_only
set_element model/model.safetensors model.layers.1.mlp.up_proj.weight 5 '\x7f'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A scheme of the KV cache and no scales" <<'CASE'
use_fp8 weights_only
edit_config 's/"kv_cache_scheme": null/"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A KV cache with dynamic scales" <<'CASE'
use_fp8 weights_only
edit_config 's/"kv_cache_scheme": null/"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": true}/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "A KV cache of NVFP4" <<'CASE'
edit_config 's/"model_type"/"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "model_type"/'
printf '{"input_ids": [3, 4, 5, 6, 7, 8]}\n' >ids.jsonl
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "One scale a layer where the scheme says one a head" <<'CASE'
use_fp8 static_kv
edit_config '/"kv_cache_scheme"/,$s/"strategy": "tensor"/"strategy": "attn_head"/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE

bad "Scales of a layer that the model does not have" <<'CASE'
use_fp8 static_kv
edit_header model/model.safetensors 's/layers.1.self_attn.k_scale/layers.7.self_attn.k_scale/'
$ kvcal eval model --task perplexity --dataset ids.jsonl
CASE
