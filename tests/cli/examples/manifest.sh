calibrate llama fp8_kv_tensor
keys out/kvcal_manifest.json model recipe dataset compute_dtype kv_forward |
  ellipsis kv_cache_scheme | one_line sample_indices
