calibrate llama fp8_kv_tensor --format quark
tensors out/model.safetensors 'layers[.]0.*scale'
