#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// DeepSeek's latent attention in Ling's names, with a gate a head.
TensorRows attention_rows_of_ling() {
  const Condition ranked = when(&ModelConfig::has_query_rank);
  const Condition biased = when(&ModelConfig::attention_bias);
  return with(when(&LayerConfig::has_attention),
              {
                  {kQuery, "attention.q_proj.weight", {}, {unless(&ModelConfig::has_query_rank)}},
                  {kQueryDown, "attention.q_a_proj.weight", {}, {ranked}},
                  {kQueryDownBias, "attention.q_a_proj.bias", {}, {ranked, biased}},
                  {kQueryDownNorm, "attention.q_a_layernorm.weight", {}, {ranked}},
                  {kQueryUp, "attention.q_b_proj.weight", {}, {ranked}},
                  {kLatent, "attention.kv_a_proj_with_mqa.weight"},
                  {kLatentBias, "attention.kv_a_proj_with_mqa.bias", {}, {biased}},
                  {kLatentNorm, "attention.kv_a_layernorm.weight"},
                  {kLatentUp, "attention.kv_b_proj.weight"},
                  {kQueryGate, "attention.g_proj.weight", {Dim::kQueryGateWidth, Dim::kHidden}},
                  {kOutput, "attention.dense.weight"},
                  {kOutputBias, "attention.dense.bias", {}, {biased}},
              });
}

/// Kimi's delta net without low ranks.
TensorRows delta_net_rows_of_ling() {
  const auto convolution = [](Role role, std::string_view name) {
    return TensorRow{role, name, {Dim::kMixerInner, Dim::kOne, Dim::kMixerKernel}};
  };
  return with(when(&LayerConfig::has_recurrence),
              {
                  {kMixerQuery, "attention.q_proj.weight"},
                  {kMixerKey, "attention.k_proj.weight"},
                  {kMixerValue, "attention.v_proj.weight"},
                  convolution(kMixerConvQuery, "attention.q_conv1d.weight"),
                  convolution(kMixerConvKey, "attention.k_conv1d.weight"),
                  convolution(kMixerConvValue, "attention.v_conv1d.weight"),
                  {kMixerKeyDecays, "attention.f_proj.weight"},
                  {kMixerStepBias, "attention.dt_bias", {Dim::kMixerKeyWidth}},
                  {kMixerDecay, "attention.A_log"},
                  {kMixerBeta, "attention.b_proj.weight"},
                  {kMixerZ, "attention.g_proj.weight"},
                  {kMixerNorm, "attention.o_norm.weight", {Dim::kMixerHeadDim}},
                  {kMixerOut, "attention.dense.weight"},
              });
}

/// The bound of decays, and what no key says.
void resolve_ling(const Json& config, ModelConfig& resolved) {
  constexpr std::string_view kBound = "kda_lower_bound";
  const double bound = number_of(config, kBound).value_or(-5.0);
  if (optional_bool(config, "kda_safe_gate").value_or(true))
    resolved.recurrent.decay_floor = static_cast<float>(bound);
  resolved.gates_whole_heads = true;
}

constexpr FamilyRow kRows[] = {
    // DeepSeek-V3's attention with a gate a head among Kimi's delta nets, whose decays have a
    // bound. Source: transformers 5.24, models/bailing_hybrid and conversion_mapping.py.
    {"bailing_hybrid", "deepseek_v3", "BailingHybridAttention", "Ling 3.0 Flash",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 512, "n_shared_experts": 1,
         "moe_intermediate_size": 768, "first_k_dense_replace": 2, "n_group": 8, "topk_group": 4,
         "num_experts_per_tok": 8, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
         "rope_theta": 6e6, "head_dim": 128, "short_conv_kernel_size": 4, "layer_group_size": 6})";
       family.aliases = {{"max_position_embeddings", "model_max_length"},
                         {"norm_topk_prob", "moe_renormalize"},
                         {"n_group", "num_expert_group"},
                         {"num_experts", "num_local_experts"},
                         {"num_experts_per_tok", "num_experts_per_token"},
                         {"n_shared_experts", "num_shared_experts"},
                         {"linear_num_value_heads", "linear_num_heads"},
                         {"linear_num_key_heads", "linear_num_heads"},
                         // In files that transformers saved, head_dim is that of positions.
                         {"linear_value_head_dim", "linear_head_dim"},
                         {"linear_value_head_dim", "head_dim"},
                         {"linear_key_head_dim", "linear_head_dim"},
                         {"linear_key_head_dim", "head_dim"},
                         {"linear_conv_kernel_dim", "short_conv_kernel_size"},
                         {"full_attention_interval", "layer_group_size"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.fixed = {{"hidden_act", "\"silu\""}};  // also of the convolution
       family.known_keys = {"kda_safe_gate", "kda_lower_bound", "qk_head_dim",
                            "mtp_loss_scaling_factor"};
       family.resolve = resolve_ling;
       family.rope_is_interleaved = true;
       family.has_query_gate = true;
       family.draft = DraftLayer::kNone;
       family.masks_first_draft = false;
       family.draft_scales = "";
       family.recurrence = Mixer::kDeltaNet;
       family.expert_layers = ExpertLayers::kTyped;
       family.attention_module = "attention";
       family.model_tensors = model_rows("word_embeddings.weight");
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows_of_ling(), delta_net_rows_of_ling(), mlp_rows(),
                   expert_rows(), correction_rows("mlp.gate.expert_bias"), shared_expert_rows()});
     }},
};

}  // namespace

Lineage ling_lineage() {
  return kRows;
}

}  // namespace kvcal
