# Of the metadata, the model's config.json is long.
calibrate llama fp8_w8a8_kv --kv-forward exact --save-statistics statistics.safetensors
tensors statistics.safetensors __metadata__ | sed -E 's/("config":")[^}]*\}\\n"/\1…"/; s/("sha256":")[0-9a-f]*/\1…/; s/",/",\n  /g'
tensors statistics.safetensors 'layers[.]0[.]self_attn[.](k|q_proj)[.]'
