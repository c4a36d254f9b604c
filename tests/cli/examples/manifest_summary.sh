calibrate llama fp8_kv_tensor
keys out/kvcal_manifest.json summary | one_line cache_bytes_per_token clipped_k clipped_v k v
