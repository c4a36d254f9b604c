calibrate llama fp8_attention
tensors out/model.safetensors 'layers[.]0.*(scale|zero_point)'
keys out/config.json config_groups kv_cache_scheme | ellipsis input_activations kv_cache_scheme
