calibrate llama fp8_kv_tensor --format quark
keys out/config.json quantization_config | ellipsis '*v_proj'
