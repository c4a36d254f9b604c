#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

constexpr SharedNames kSharedOfKimi{"block_sparse_moe.shared_experts.gate_proj.weight",
                                    "block_sparse_moe.shared_experts.up_proj.weight",
                                    "block_sparse_moe.shared_experts.down_proj.weight"};

/// MLPs of layers without experts, under the name of layers with them.
TensorRows saved_mlp_rows() {
  return with(unless(&LayerConfig::is_moe), {{kGate, "block_sparse_moe.gate_proj.weight"},
                                             {kUp, "block_sparse_moe.up_proj.weight"},
                                             {kDown, "block_sparse_moe.down_proj.weight"}});
}

/// The residual sums that attention or a delta net attends over, and the MLP.
TensorRows sum_rows() {
  return with(when(&ModelConfig::attends_residuals),
              {{kAttentionSumNorm, "self_attention_res_norm.weight"},
               {kAttentionSumScore, "self_attention_res_proj.weight", {Dim::kOne, Dim::kHidden}},
               {kMlpSumNorm, "mlp_res_norm.weight"},
               {kMlpSumScore, "mlp_res_proj.weight", {Dim::kOne, Dim::kHidden}}});
}

/// Those that the final norm attends over.
TensorRows final_sum_rows() {
  return with(when(&ModelConfig::attends_residuals),
              {{kFinalSumNorm, "output_attn_res_norm.weight"},
               {kFinalSumScore, "output_attn_res_proj.weight", {Dim::kOne, Dim::kHidden}}});
}

/// Latent attention with gates over the whole width of its output.
TensorRows attention_rows_of_k3() {
  TensorRows rows = latent_attention_rows();
  rows.push_back({kQueryGate,
                  "self_attn.g_proj.weight",
                  {Dim::kAttendedWidth, Dim::kHidden},
                  {when(&ModelConfig::gates_attention)}});
  return with(when(&LayerConfig::has_attention), std::move(rows));
}

/// Kimi's delta net, whose gates may do without a low rank.
TensorRows delta_net_rows_of_k3() {
  TensorRows rows = kimi_delta_net_rows({});
  for (TensorRow& row : rows)
    if (row.role == kMixerZDown || row.role == kMixerZUp)
      row.conditions.push_back(unless(&ModelConfig::has_full_rank_gate));
  rows.push_back(
      {kMixerZ, "self_attn.g_proj.weight", {}, {when(&ModelConfig::has_full_rank_gate)}});
  return with(when(&LayerConfig::has_recurrence), std::move(rows));
}

/// The latent that experts read.
TensorRows latent_rows() {
  return with(when(&LayerConfig::is_moe),
              with(when(&ModelConfig::has_expert_latent),
                   {{kExpertsIn, "block_sparse_moe.routed_expert_down_proj.weight"},
                    {kExpertsOut, "block_sparse_moe.routed_expert_up_proj.weight"},
                    {kExpertsSumNorm,
                     "block_sparse_moe.routed_expert_norm.weight",
                     {},
                     {when(&ModelConfig::norms_expert_latent)}}}));
}

/// The bound of decays, and what counts only in some cases.
void resolve_k3(const Json& config, ModelConfig& resolved) {
  if (const Json* linear = find_field(config, "linear_attn_config"))
    resolved.recurrent.decay_floor = static_cast<float>(
        number_of(*linear, "linear_lower_bound", "gate_lower_bound").value_or(0.0));
  if (resolved.activation != Activation::kSitu) resolved.up_softcap = 0.0f;
  // One expert's weight is not divided by itself.
  if (resolved.moe.experts_per_token == 1) resolved.norm_topk_prob = false;
}

constexpr FamilyRow kRows[] = {
    // DeepSeek-V3's attention without positions among delta nets whose states fade by key. Source:
    // transformers 5.24, models/kimi_linear and conversion_mapping.py.
    {"kimi_linear", "deepseek_v3", "KimiLinearAttention", "Kimi Linear 48B-A3B",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "v_head_dim": 128, "rms_norm_eps": 1e-5, "num_experts": 256, "num_shared_experts": 1,
         "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "num_expert_group": 1,
         "topk_group": 1, "num_experts_per_token": 8, "moe_renormalize": true,
         "routed_scaling_factor": 2.446, "model_max_length": 1048576, "linear_head_dim": 128,
         "linear_num_heads": 32, "linear_conv_kernel_dim": 4})";
       family.aliases = kimi_delta_net_aliases();
       add(family.aliases, {{"max_position_embeddings", "model_max_length"},
                            {"norm_topk_prob", "moe_renormalize"},
                            {"n_group", "num_expert_group"},
                            {"num_experts_per_tok", "num_experts_per_token"},
                            {"n_shared_experts", "num_shared_experts"},
                            {"attn_layer_numbers", "linear_attn_config.full_attn_layers"}});
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.fixed = {{"hidden_act", "\"silu\""},  // also of the convolution
                       {"mla_use_nope", "true"},
                       {"moe_layer_freq", "1"},
                       {"use_grouped_topk", "true"},
                       {"moe_router_activation_func", "\"sigmoid\""},
                       // Of the text model of Kimi-K3, which has a family of its own.
                       {"attn_res_block_size", "null"}};
       family.known_keys = {"linear_attn_config.kda_layers", "head_dim", "qk_head_dim",
                            "rope_theta", "rope_scaling"};
       family.has_prediction_layers = false;
       family.draft = DraftLayer::kNone;
       family.masks_first_draft = false;
       family.draft_scales = "";
       family.positions = Positions::kNone;
       family.recurrence = Mixer::kDeltaNet;
       family.expert_layers = ExpertLayers::kTyped;
       family.layer_tensors = joined(
           {pre_norm_rows(), with(when(&LayerConfig::has_attention), latent_attention_rows()),
            with(when(&LayerConfig::has_recurrence),
                 kimi_delta_net_rows({Dim::kOne, Dim::kOne, Dim::kMixerHeads, Dim::kOne})),
            with(unless(&ModelConfig::has_saved_names), mlp_rows()),
            with(when(&ModelConfig::has_saved_names), saved_mlp_rows()),
            expert_rows(kMixtralExperts),
            correction_rows("block_sparse_moe.gate.e_score_correction_bias"),
            shared_expert_rows(kSharedOfKimi)});
     }},
    // Kimi Linear whose layers attend over residual sums, with experts in a latent, SiTU, and gates
    // of attention. Published with kimi_linear as the text model's type. Source: llm-compressor
    // 0.14, modeling/kimi_k3/modeling_kimi_linear.py.
    {"kimi_k3", "kimi_linear", "KimiMLAAttention", "text model of Kimi-K3",
     [](Architecture& family) {
       family.model_types = {"kimi_k3_text"};
       family.defaults = R"({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
         "v_head_dim": 128, "rms_norm_eps": 1e-6, "num_shared_experts": 0,
         "first_k_dense_replace": 0, "num_expert_group": 1, "topk_group": 1,
         "moe_renormalize": true, "routed_scaling_factor": 1.0, "max_position_embeddings": 4096,
         "mla_use_output_gate": false})";
       add(family.aliases, {{"moe_latent_size", "routed_expert_hidden_size"},
                            {"use_full_rank_gate", "linear_attn_config.use_full_rank_gate"}});
       family.switches = {{"norm_topk_prob", &ModelConfig::norm_topk_prob},
                          {"mla_use_output_gate", &ModelConfig::gates_attention},
                          {"latent_moe_use_norm", &ModelConfig::norms_expert_latent},
                          {"use_full_rank_gate", &ModelConfig::has_full_rank_gate}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor},
                         {"activation_situ_beta", &ModelConfig::activation_beta},
                         {"activation_situ_linear_beta", &ModelConfig::up_softcap}};
       family.fixed = {{"mla_use_nope", "true"},
                       {"moe_layer_freq", "1"},
                       {"topk_method", "\"noaux_tc\""},
                       {"moe_router_activation_func", "\"sigmoid\""}};
       add(family.known_keys, {"use_grouped_topk", "linear_attn_config.gate_lower_bound"});
       family.resolve = resolve_k3;
       family.has_query_gate = true;
       family.model_tensors = joined({family.model_tensors, final_sum_rows()});
       family.layer_tensors =
           joined({pre_norm_rows(), sum_rows(), attention_rows_of_k3(), delta_net_rows_of_k3(),
                   mlp_rows(), expert_rows(kMixtralExperts), latent_rows(),
                   correction_rows("block_sparse_moe.gate.e_score_correction_bias"),
                   shared_expert_rows(kSharedOfKimi)});
     }},
};

}  // namespace

Lineage kimi_lineage() {
  return kRows;
}

}  // namespace kvcal
