calibrate llama fp8_kv_tensor --format modelopt
keys out/config.json quantization_config
