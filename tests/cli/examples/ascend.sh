calibrate llama int8_kv_channel --format ascend
ls out
grep -v FLOAT out/quant_model_description.json
