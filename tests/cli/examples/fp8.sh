calibrate deepseek_v3_fp8 fp8_kv_tensor --format fp8
tensors out/model.safetensors 'layers[.]0[.]self_attn.*(kv_b_proj|[kv]_scale)'
keys out/config.json quantization_config
