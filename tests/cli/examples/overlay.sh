calibrate llama fp8_kv_tensor --format tgi --scales-only
cd out && ls && cat kvcal_overlay.json
