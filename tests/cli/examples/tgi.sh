calibrate llama fp8_kv_tensor --format tgi
tensors out/model.safetensors 'scale'
keys out/config.json kv_cache_torch_dtype
