calibrate llama fp8_kv_tensor --format compressed-tensors --format tgi
cd out && stat -c '%h %n' */*.safetensors
