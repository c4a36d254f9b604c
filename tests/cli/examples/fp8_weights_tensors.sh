calibrate llama fp8_w8a8
tensors out/model.safetensors 'layers[.]0[.]mlp[.]down_proj'
