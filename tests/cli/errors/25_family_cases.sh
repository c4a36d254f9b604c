topic "Model families" "What a family cannot do is refused by the key's name before any work."

# refuse FIXTURE TITLE SED: the fixture's config.json changed by a sed script.
refuse() {
  bad "$2" <<CASE
use_model $1
edit_config '$3'
CASE
}

bad "A model_type with a slip" <<'CASE'
edit_config 's/"model_type": "llama"/"model_type": "qwen3moe"/'
CASE

# All types and their reasons stand in docs/models.md.
for type in zamba2 inkling2 bart mamba; do
  bad "Refused by name: $type" <<CASE
edit_config 's/"model_type": "llama"/"model_type": "$type"/'
CASE
done

refuse llama "An unknown rope type" 's/"rope_scaling": null/"rope_scaling": {"rope_type": "lama3", "factor": 4.0}/'

refuse gpt2 "An unknown activation by the family's own key" 's/"gelu_new"/"gelu_newer"/'

refuse falcon_7b "Falcon with ALiBi" 's/"alibi": false/"alibi": true/'

refuse bloom "BLOOM whose sums leave biases out" 's/"slow_but_exact": false/"slow_but_exact": true/'

refuse mpt "MPT with other slopes" 's/"alibi_bias_max": 8/"alibi_bias_max": 16/'

refuse mpt "MPT with another norm" 's/low_precision_layernorm/rmsnorm/'


refuse gemma3_text_v5 "Gemma 3 that attends both ways" 's/"use_bidirectional_attention": false/"use_bidirectional_attention": true/'

refuse deepseek_v2_groups "DeepSeek-V2 with an unknown way to choose experts" 's/"topk_method": "[a-z_]*"/"topk_method": "noaux_tc"/'

refuse deepseek_v2_groups "Groups that do not divide the experts" 's/"n_group": [0-9]+/"n_group": 3/'

refuse deepseek_v2_groups "Groups that cannot give the experts of a token" 's/"topk_group": [0-9]+/"topk_group": 1/; s/"num_experts_per_tok": [0-9]+/"num_experts_per_tok": 5/'

refuse deepseek_v2_groups "More groups a token than there are" 's/"topk_group": [0-9]+/"topk_group": 99/'

refuse mixtral "More experts a token than there are" 's/"num_experts_per_tok": [0-9]+/"num_experts_per_tok": 99/'

refuse phi3_longrope_long "longrope factors of the wrong length" '/"long_factor": \[/,/\]/{s/\[/[1.5,/}'

refuse gemma3_text_v5 "layer_types with an unknown word" '/"layer_types": \[/,/\]/s/"full_attention"/"linear_attention"/'

refuse gemma3_text_v5 "layer_types of the wrong length" '/"layer_types": \[/,/\]/s/\[/["full_attention",/'

refuse gemma3_text "A sliding window pattern of zero" 's/"sliding_window_pattern": [0-9]+/"sliding_window_pattern": 0/'

refuse nemotron_h "Experts in a latent of no width" 's/"n_group": 1,/"moe_latent_size": 0, &/'

refuse nemotron_h "A layer pattern with an unknown letter" 's/"M\*-ME\*"/"M*-XE*"/'

refuse nemotron_h "A layer pattern of the wrong length" 's/"M\*-ME\*"/"M*-ME"/'

refuse nemotron_h "A hybrid without attention" 's/"M\*-ME\*"/"MM-MEM"/'

refuse granitemoehybrid "A hybrid's layer types with an unknown word" '/"layer_types": \[/,/\]/s/"mamba"/"hyena"/'

refuse falcon_h1 "Step sizes without an upper limit" 's/"mamba_d_conv"/"time_step_limit": [0.0], &/'

refuse falcon_h1 "Step sizes between limits that do not rise" 's/"mamba_d_conv"/"time_step_limit": [Infinity, Infinity], &/'

refuse bamba "An attention layer past the last" '/"attn_layer_indices": \[/,/\]/s/1$/1, 99/'

refuse bamba "A list of attention layers that is a number" '/"attn_layer_indices": \[/,/\]/c "attn_layer_indices": 1,'

refuse jamba "Attention layers behind their period" 's/"attn_layer_offset": 1/"attn_layer_offset": 3/'

refuse qwen3_next "Keys of a delta net that do not divide its values" 's/"linear_num_key_heads": 2/"linear_num_key_heads": 3/'

refuse exaone_moe "mlp_layer_types with an unknown word" '/"mlp_layer_types": \[/,/\]/s/"dense"/"thick"/'

refuse granite_swa "Bases of rope for fewer layers than there are" '/"layer_rope_theta": \[/,/\]/{/1000000.0,/d}'

refuse granite_swa "A base of rope that is a word" '/"layer_rope_theta": \[/,/\]/s/1000000.0/"large"/'

refuse olmo3 "A base of rope that layers with a window may have or not" 's/"rope_theta": 500000.0/"rope_theta": 250000.0/'

refuse phimoe "Two lengths that PhiMoE was trained with" '0,/"original_max_position_embeddings": 48/s//"original_max_position_embeddings": 24/'

refuse gptj "An odd number of turning dimensions" 's/"rotary_dim": [0-9]+/"rotary_dim": 5/'

refuse gpt_neo "attention_types with an unknown word" 's/"local"$/"near"/'

refuse gpt_neo "attention_types for too many layers" '/"attention_types": \[/,/1$/s/1$/2/'

refuse codegen "CodeGen with heads that do not fill four blocks" 's/"n_head": 4/"n_head": 5/'

refuse opt "OPT with an embedding without width" 's/"word_embed_proj_dim": 48/"word_embed_proj_dim": 0/'

refuse opt "OPT with norms behind, without weights" \
  's/"do_layer_norm_before": true/"do_layer_norm_before": false/; s/(affine": )true/\1false/'

refuse smollm3 "Windows that attention does not use" '0,/full_attention/s/full_attention/sliding_attention/'


refuse llama4 "Chunks without tokens" 's/"attention_chunk_size": 12/"attention_chunk_size": 0/'

refuse llama4 "Layers with experts that are no list" '/"moe_layers": \[/,/\]/c "moe_layers": 1,'

refuse llama4 "layer_types of Llama 4 with an unknown word" 's/"attention_chunk_size": 12/"layer_types": ["chunked_attention", "full_attention", "local", "full_attention"], &/'

bad "A sample longer than a model with learned positions can take" <<'CASE'
use_model gpt2
printf '{"input_ids": [%s7]}\n' "$(repeat 50 '7, ')" >data.jsonl
CASE

bad "A hybrid and a format that needs every layer" <<'CASE'
use_model nemotron_h
$ kvcal calibrate model --recipe recipe.yaml --dataset "$DATA/small.jsonl" --output out --format scales-json
CASE

refuse deepseek_v32 "Sparse attention that reads no key" 's/"index_topk": 64/"index_topk": 0/'

refuse deepseek_v32 "An indexer without queries of a rank" 's/"q_lora_rank": [0-9]+/"q_lora_rank": null/'

refuse deepseek_v32 "DeepSeek-V3.2 whose indexer turns pairs" 's/"index_topk": 64/"index_topk": 64, "indexer_rope_interleave": true/'

refuse glm_moe_dsa_sparse "A first layer that has no indexer" '0,/"full"/s//"shared"/'

refuse glm_moe_dsa_sparse "An unknown type of an indexer" '0,/"full"/s//"fuller"/'

refuse glm_moe_dsa_sparse "Fewer types of indexers than layers" 's/"num_hidden_layers": 4/"num_hidden_layers": 5/'
