calibrate llama fp8_kv_head --format scales-json --tp-size 2
cat out/kv_cache_scales.json
