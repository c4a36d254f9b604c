calibrate llama fp8_skip_layers
cat out/vllm.yaml
