calibrate llama fp8_skip_layers --format modelopt
cat out/hf_quant_config.json
