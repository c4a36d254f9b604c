calibrate llama fp8_kv_head
tensors out/model.safetensors 'layers[.]0.*scale'
keys out/config.json strategy
