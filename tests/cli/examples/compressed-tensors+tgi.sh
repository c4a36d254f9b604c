calibrate llama fp8_kv_tensor --format compressed-tensors+tgi
tensors out/model.safetensors 'layers[.]0.*scale'
keys out/config.json kv_cache_torch_dtype
