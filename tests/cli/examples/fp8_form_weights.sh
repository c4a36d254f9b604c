calibrate llama fp8_w8a8_kv --format fp8
tensors out/model.safetensors 'layers[.]0[.]self_attn[.]k_(proj|scale)'
keys out/config.json quantization_config
