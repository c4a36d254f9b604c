calibrate llama fp8_dynamic_kv --format quark
tensors out/model.safetensors 'layers[.]0[.]self_attn[.]k_proj'
keys out/config.json exclude global_quant_config | one_line input_tensors weight
