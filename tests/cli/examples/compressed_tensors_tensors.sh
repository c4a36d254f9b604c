calibrate llama fp8_kv_tensor
tensors out/model.safetensors 'layers[.]0.*scale'
