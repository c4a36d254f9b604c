calibrate mixtral fp8_kv_tensor
keep '[{}]|total_|layers[.]0[.]self_attn' <out/model.safetensors.index.json
