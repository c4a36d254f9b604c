calibrate llama fp8_kv_tensor
keys out/kvcal_manifest.json layers | sed -n '1,/^    }/p' |
  one_line first k_head_amax v_head_amax counts num_samples k_amax v_amax k_interval v_interval head_output_error head_weights_kl
