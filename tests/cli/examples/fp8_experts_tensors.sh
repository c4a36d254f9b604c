calibrate granitemoe fp8_dynamic
tensors out/model.safetensors 'layers[.]0[.].*experts[.]0'
