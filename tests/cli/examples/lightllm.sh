calibrate llama fp8_kv_head --format lightllm
cat out/kv_cache_calib.json
