calibrate llama fp8_kv_tensor
keys out/config.json quantization_config
