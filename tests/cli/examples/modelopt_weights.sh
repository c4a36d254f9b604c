calibrate llama fp8_w8a8_kv --format modelopt
tensors out/model.safetensors 'layers[.]0[.]self_attn[.]k_proj'
keys out/hf_quant_config.json quantization
