calibrate llama fp8_kv_tensor --format modelopt
cat out/hf_quant_config.json
