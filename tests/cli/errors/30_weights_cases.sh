topic "Weights" "Every tensor of the checkpoint is held against config.json; one run lists all that is wrong."

bad "A missing tensor" <<'CASE'
edit_header model/model.safetensors 's/model.norm.weight/other.norm.weight/'
CASE

bad "A model without lm_head, where tokens get probabilities" <<'CASE'
# K and V need none, so embedders and reward models are calibrated; --measure, generate and eval need it.
use_model llama_tied_bf16
edit_config 's/"tie_word_embeddings": true/"tie_word_embeddings": false/'
$ kvcal calibrate model --recipe recipe.yaml --dataset data.jsonl --output out --measure
CASE

bad "An lm_head of codes that nothing describes, where tokens get probabilities" <<'CASE'
edit_header model/model.safetensors 's/("lm_head.weight":\{"dtype":)"F16","shape":\[160,48\]/\1"U8","shape":[160,96]/'
$ kvcal eval model --task perplexity --dataset data.jsonl
CASE

bad "Missing layers" <<'CASE'
edit_config 's/"num_hidden_layers": 2/"num_hidden_layers": 3/'
CASE

bad "Unexpected tensors" <<'CASE'
# A name that nothing reads is a sign of another architecture, or of a typo.
edit_header model/model.safetensors 's/model.layers.1.mlp.up_proj.weight/model.layers.1.mlp.up_prog.weight/'
CASE

bad "A tensor of the wrong shape" <<'CASE'
edit_config 's/"intermediate_size": 80/"intermediate_size": 96/'
CASE

bad "A tensor of the wrong dtype" <<'CASE'
edit_header model/model.safetensors 's/("model.norm.weight":\{"dtype":)"F16"/\1"I16"/'
CASE

bad "NaN in the weights" <<'CASE'
set_element model/model.safetensors model.layers.1.self_attn.v_proj.weight 5 '\x00\x7e'
CASE

bad "Inf in the weights" <<'CASE'
set_element model/model.safetensors model.layers.0.self_attn.k_proj.weight 5 '\x00\x7c'
CASE

bad "Inf in a norm of a layer before" <<'CASE'
# It shows where it first reaches K or V.
set_element model/model.safetensors model.layers.0.post_attention_layernorm.weight 7 '\x00\x7c'
CASE

bad "NaN in weights that become FP8" <<'CASE'
# No forward pass sees them first.
set_element model/model.safetensors model.layers.1.self_attn.v_proj.weight 5 '\x00\x7e'
printf 's_stage: {m_modifiers: {QuantizationModifier: {targets: Linear, scheme: FP8_DYNAMIC, ignore: [lm_head]}}}\n' >recipe.yaml
$ kvcal calibrate model --recipe recipe.yaml --output out
CASE

bad "A checkpoint with an FP8 KV cache already" <<'CASE'
edit_config 's/"model_type"/"quantization_config": {"quant_method": "compressed-tensors"}, "model_type"/'
CASE

bad "A gpt-oss checkpoint as it is published" <<'CASE'
edit_config 's/"model_type"/"quantization_config": {"quant_method": "mxfp4"}, "model_type"/'
CASE

bad "A checkpoint whose weights are quantized" <<'CASE'
edit_config 's/"model_type"/"quantization_config": {"quant_method": "gptq", "bits": 4}, "model_type"/'
edit_header model/model.safetensors 's/q_proj.weight/q_proj.qweight/g; s/qweight":\{"dtype":"F16"/qweight":{"dtype":"I16"/g'
CASE

bad "NaN in the embedding of a token, when it is scored" <<'CASE'
# Other records do not have the token.
set_element model/model.safetensors model.embed_tokens.weight $((24 * 48 + 5)) '\x00\x7e'
$ kvcal eval model --task perplexity --dataset data.jsonl
CASE
