topic "Weights of families" "Fused, expert and FP8 tensors are held against config.json as the others are."

bad "An MoE without one expert's tensor" <<'CASE'
# It has another name, so it is unexpected too.
use_model qwen3_moe
edit_header model/model.safetensors 's/layers.1.mlp.experts.2.down_proj.weight/layers.1.mlp.experts.2.dawn_proj.weight/'
CASE

bad "An MoE with more experts than config.json says" <<'CASE'
use_model mixtral
edit_config 's/"num_local_experts": 5/"num_local_experts": 4/'
CASE

bad "An MoE with fewer experts than config.json says" <<'CASE'
use_model qwen3_moe
edit_config 's/"num_experts": [0-9]+/"num_experts": 64/'
CASE

bad "Stacked experts of another width" <<'CASE'
use_model gpt_oss
edit_config 's/"intermediate_size": [0-9]+/"intermediate_size": 40/'
CASE

bad "A fused q, k and v of another width" <<'CASE'
use_model phi3
edit_config 's/"num_key_value_heads": [0-9]+/"num_key_value_heads": 1/'
CASE

bad "A fused q, k and v by group that is missing" <<'CASE'
use_model gpt_neox
edit_header model/model.safetensors 's/layers.0.attention.query_key_value.weight/layers.0.attention.qkv.weight/'
CASE

bad "FP8 weights without weight_block_size" <<'CASE'
use_model deepseek_v3_fp8
edit_config '/"weight_block_size"/,/\]/d; s/("quant_method": "fp8"),/\1/'
CASE

bad "FP8 weights and no quantization_config" <<'CASE'
use_model deepseek_v3_fp8
edit_config 's/"quantization_config"/"quantisation_config"/'
CASE

bad "A missing block scale" <<'CASE'
use_model deepseek_v3_fp8
edit_header model/model.safetensors 's/layers.0.mlp.up_proj.weight_scale_inv/layers.0.mlp.up_proj.weight_scale_old/'
CASE

bad "Blocks of another size than the scales have" <<'CASE'
use_model deepseek_v3_fp8
edit_config '/"weight_block_size"/,/\]/s/20/24/'
CASE
