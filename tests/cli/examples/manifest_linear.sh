calibrate llama fp8_w8a8
keys out/kvcal_manifest.json model.layers.0.mlp.down_proj
