calibrate llama fp8_kv_tensor
"$KVCAL" convert out --format tgi --output converted >log 2>&1
keys converted/kvcal_manifest.json conversion
