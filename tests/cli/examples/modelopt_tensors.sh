calibrate llama fp8_kv_tensor --format modelopt
tensors out/model.safetensors 'layers[.]0.*scale'
