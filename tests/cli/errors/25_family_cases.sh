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

for type in $("$KVCAL" families --json | sed -n '/"refused"/,$s/.*"model_type": "\(.*\)",/\1/p'); do
  bad "Refused by name: $type" <<CASE
edit_config 's/"model_type": "llama"/"model_type": "$type"/'
CASE
done

refuse llama "An unknown rope type" 's/"rope_scaling": null/"rope_scaling": {"rope_type": "lama3", "factor": 4.0}/'

refuse gpt2 "An unknown activation by the family's own key" 's/"gelu_new"/"gelu_newer"/'

refuse falcon_7b "Falcon with ALiBi" 's/"alibi": false/"alibi": true/'

refuse olmoe "OLMoE with clipped q, k and v" 's/"clip_qkv": null/"clip_qkv": 8.0/'

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

refuse nemotron_h "Experts that work in a latent space" 's/"n_group": 1,/"moe_latent_size": 16, &/'

refuse nemotron_h "A layer pattern with an unknown letter" 's/"M\*-ME\*"/"M*-XE*"/'

refuse nemotron_h "A layer pattern of the wrong length" 's/"M\*-ME\*"/"M*-ME"/'

refuse nemotron_h "A hybrid without attention" 's/"M\*-ME\*"/"MM-MEM"/'

refuse granitemoehybrid "A hybrid's layer types with an unknown word" '/"layer_types": \[/,/\]/s/"mamba"/"hyena"/'

refuse nemotron_h "Step sizes without an upper limit" '/"time_step_limit": \[/,/\]/{s/0\.0,/0.0/; /Infinity/d}'

refuse nemotron_h "Step sizes between limits that do not rise" '/"time_step_limit": \[/,/\]/s/0\.0/Infinity/'

refuse bamba "An attention layer past the last" '/"attn_layer_indices": \[/,/\]/s/1$/1, 99/'

refuse bamba "A list of attention layers that is a number" '/"attn_layer_indices": \[/,/\]/c "attn_layer_indices": 1,'

refuse jamba "Attention layers behind their period" 's/"attn_layer_offset": 1/"attn_layer_offset": 3/'

refuse qwen3_next "Keys of a delta net that do not divide its values" 's/"linear_num_key_heads": 2/"linear_num_key_heads": 3/'

bad "A sample longer than a model with learned positions can take" <<'CASE'
use_model gpt2
printf '{"input_ids": [%s7]}\n' "$(repeat 50 '7, ')" >data.jsonl
CASE

bad "A hybrid and a format that needs every layer" <<'CASE'
use_model nemotron_h
$ kvcal calibrate model --recipe recipe.yaml --dataset "$DATA/small.jsonl" --output out --format scales-json
CASE
