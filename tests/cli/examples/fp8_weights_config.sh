calibrate mixtral fp8_w8a8
keys out/config.json config_groups format ignore kv_cache_scheme
