calibrate llama fp8_kv_tensor
cat out/README.md
