calibrate llama fp8_kv_tensor --stop-when-stable 5% --stable-samples 1
keys out/kvcal_manifest.json stop
