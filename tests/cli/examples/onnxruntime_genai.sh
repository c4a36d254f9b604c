calibrate llama fp8_kv_tensor --format onnxruntime-genai
cat out/kv_scales.json
