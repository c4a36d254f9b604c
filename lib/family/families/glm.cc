#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows glm4_norm_rows() {
  return {
      {kInputNorm, "input_layernorm.weight"},
      {kAttentionOutputNorm, "post_self_attn_layernorm.weight"},
      {kMlpNorm, "post_attention_layernorm.weight"},
      {kMlpOutputNorm, "post_mlp_layernorm.weight"},
  };
}

TensorRows fused_attention_rows() {
  return {{kQueryKeyValue, "attention.query_key_value.weight"},
          {kQueryKeyValueBias,
           "attention.query_key_value.bias",
           {},
           {when(&ModelConfig::attention_bias)}},
          {kOutput, "attention.dense.weight"}};
}

/// Hyper-connections of a layer.
TensorRows connection_rows() {
  return {{kAttentionConnection, "hc_attn_fn"},       {kAttentionConnectionScale, "hc_attn_scale"},
          {kAttentionConnectionBase, "hc_attn_base"}, {kMlpConnection, "hc_ffn_fn"},
          {kMlpConnectionScale, "hc_ffn_scale"},      {kMlpConnectionBase, "hc_ffn_base"}};
}

/// Takes out keys whose meaning in other families transformers' class does not give them.
void prepare_glm5(Json& config) {
  for (const char* key : {"first_k_dense_replace", "moe_layer_freq", "full_attention_interval"})
    config.erase(key);
}

/// Least logarithm of a decay; 0: none. The object's null means the usual one, unless safe_gate is
/// false.
float decay_floor_of(const Json& config) {
  constexpr float kUsual = -5.0f;
  constexpr std::string_view kKey = "linear_lower_bound";
  const auto said = number_of(config, kKey);
  const bool is_null = config.contains(std::string(kKey)) && !said;
  float floor = said ? static_cast<float>(*said) : is_null ? 0.0f : kUsual;
  const Json* linear = find_field(config, "linear_attn_config");
  if (!linear) return floor;
  if (linear->contains("gate_lower_bound"))
    floor = static_cast<float>(number_of(*linear, kKey, "gate_lower_bound").value_or(0.0));
  const bool is_safe =
      !linear->contains("safe_gate") || optional_bool(*linear, "safe_gate").value_or(false);
  return floor == 0.0f && is_safe ? kUsual : floor;
}

/// The indexer selects pools of keys and the keys behind the last whole pool. So it selects all
/// while it may select every whole pool.
void resolve_glm5(const Json& config, ModelConfig& resolved) {
  resolved.activation_adds_one = false;
  resolved.latent.norm_eps = resolved.norm_eps;
  for (LayerConfig& layer : resolved.layers) layer.latent.norm_eps = resolved.norm_eps;
  resolved.recurrent.decay_floor = decay_floor_of(config);
  const int64_t selected = optional_int(config, "index_topk").value_or(2048);
  const int64_t pool = optional_int(config, "index_kpool").value_or(16);
  if (pool < 1 || selected < 1 || selected > kMaxPositions || selected % pool != 0)
    fail("key 'index_topk' is ", selected, ", expected a multiple of index_kpool ", pool);
  resolved.most_tokens = selected + pool - 1;
}

constexpr FamilyRow kRows[] = {
    {"glm", "", "GlmAttention", "GLM-4-9B, GLM-Edge",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
         "attention_bias": true, "partial_rotary_factor": 0.5})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias}};
       family.rope_is_interleaved = true;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), fused_mlp_rows()});
     }},
    // GLM with norms on both sides.
    {"glm4", "glm", "Glm4Attention", "GLM-4-0414, GLM-Z1",
     [](Architecture& family) {
       family.layer_tensors = joined({glm4_norm_rows(), attention_rows(), fused_mlp_rows()});
     }},
    // GLM-4 within GLM-4.1V; Q, K and V have biases.
    {"glm4v", "glm4", "Glm4vTextAttention", "text model of GLM-4.1V, GLM-4.6V-Flash",
     [](Architecture& family) {
       family.model_types = {"glm4v_text"};
       family.defaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "partial_rotary_factor": 1.0})";
       family.text_defaults = R"({"vocab_size": 151552, "hidden_size": 4096,
         "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
         "max_position_embeddings": 32768})";
       family.switches = {};
       family.known_keys = {"attention_bias"};
       family.resolve = [](const Json&, ModelConfig& config) { config.attention_bias = true; };
     }},
    // The text model of GLM-4.1V without biases.
    {"glm_ocr", "glm4v", "GlmOcrTextAttention", "text model of GLM-OCR",
     [](Architecture& family) {
       family.model_types = {"glm_ocr_text"};
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5})";
       family.text_defaults = R"({"vocab_size": 59392, "hidden_size": 1024,
         "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
         "max_position_embeddings": 131072})";
       family.resolve = nullptr;
       family.has_prediction_layers = true;
     }},
    // GLM's attention, DeepSeek-V3's experts.
    {"glm4_moe", "", "Glm4MoeAttention", "GLM-4.5, GLM-4.6",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "norm_topk_prob": true})";
       family.aliases = {{"num_experts", "n_routed_experts"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"use_qk_norm", &ModelConfig::has_qk_norm},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.has_prediction_layers = true;
       family.draft = DraftLayer::kBehindLast;
       family.masks_first_draft = true;
       family.draft_scales = "attn";
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(),
                   with(when(&ModelConfig::has_qk_norm), head_norm_rows()), mlp_rows(),
                   expert_rows(), correction_rows(), shared_expert_rows()});
     }},
    // GLM-4.5 with RoPE in all dimensions, under names of its own. Source: transformers 5.24,
    // models/sarvam_moe and conversion_mapping.py.
    {"sarvam_moe", "glm4_moe", "Glm4MoeAttention", "Sarvam 30B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 64, "rope_theta": 8000000.0,
         "moe_intermediate_size": 1024, "num_experts_per_tok": 6, "n_shared_experts": 1,
         "num_experts": 128, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
         "norm_topk_prob": true, "routed_scaling_factor": 2.5, "use_qk_norm": true,
         "partial_rotary_factor": 1.0})";
       add(family.aliases,
           {{"n_shared_experts", "num_shared_experts"}, {"attention_bias", "use_qkv_bias"}});
       family.has_prediction_layers = false;
       family.draft = DraftLayer::kNone;
       family.masks_first_draft = false;
       family.draft_scales = "";
       family.attention_module = "attention";
       family.model_tensors = model_rows("word_embeddings.weight");
       family.layer_tensors = joined(
           {pre_norm_rows(), fused_attention_rows(),
            with(when(&ModelConfig::has_qk_norm), head_norm_rows("attention.query_layernorm.weight",
                                                                 "attention.key_layernorm.weight")),
            mlp_rows(), expert_rows(), correction_rows("mlp.gate.expert_bias"),
            shared_expert_rows()});
     }},
    // GLM-4.5 within GLM-4.5V.
    {"glm4v_moe", "glm4_moe", "Glm4vMoeTextAttention", "text model of GLM-4.5V, GLM-4.6V",
     [](Architecture& family) {
       family.model_types = {"glm4v_moe_text"};
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": true,
         "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "norm_topk_prob": true})";
       family.text_defaults = R"({"vocab_size": 151424, "hidden_size": 4096,
         "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
         "max_position_embeddings": 65536})";
       family.fixed = {{"use_qk_norm", "false"}};
       family.draft = DraftLayer::kNone;  // no engine has been asked for its names
     }},
    // Kimi Linear's layers between hyper-connected residual streams, with the clamped gates of
    // DeepSeek-V4. The indexer of its attention has no part in attention over as many keys as it
    // selects. Source: transformers 5.24, models/glm5_next and conversion_mapping.py.
    {"glm5_next", "kimi_linear", "Glm5NextTextAttention", "text model of GLM-5.3-Flash",
     [](Architecture& family) {
       family.model_types = {"glm5_next_text"};
       family.defaults = R"({"num_key_value_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536,
         "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256, "rms_norm_eps": 1e-5,
         "n_routed_experts": 288, "n_shared_experts": 1, "moe_intermediate_size": 2048,
         "first_k_dense_replace": 3, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 8,
         "norm_topk_prob": true, "routed_scaling_factor": 2.5, "swiglu_limit": 10.0,
         "full_attention_interval": 4, "linear_head_dim": 128, "linear_num_heads": 64,
         "linear_conv_kernel_dim": 4, "hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20})";
       family.text_defaults = R"({"vocab_size": 154880, "hidden_size": 4096,
         "intermediate_size": 12288, "num_hidden_layers": 45, "num_attention_heads": 64,
         "max_position_embeddings": 1048576})";
       family.aliases = kimi_delta_net_aliases();
       add(family.aliases,
           {{"num_experts", "n_routed_experts"}, {"num_experts", "num_local_experts"}});
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor},
                         {"swiglu_limit", &ModelConfig::activation_limit}};
       family.fixed = {{"hidden_act", "\"silu\""},  // also of the convolution
                       {"qk_rope_head_dim", "0"},
                       {"index_kpool_always_select_tail", "true"}};
       family.known_keys = {"linear_attn_config.kda_layers",
                            "linear_attn_config.full_attn_layers",
                            "linear_attn_config.gate_lower_bound",
                            "linear_attn_config.safe_gate",
                            "linear_lower_bound",
                            "head_dim",
                            "qk_head_dim",
                            "index_topk",
                            "index_kpool",
                            "index_head_dim",
                            "index_n_heads",
                            "indexer_types",
                            "index_topk_pattern",
                            "index_topk_freq",
                            "index_skip_topk_offset"};
       family.prepare = prepare_glm5;
       family.resolve = resolve_glm5;
       family.has_prediction_layers = true;
       family.layer_tensors =
           joined({pre_norm_rows(), connection_rows(),
                   with(when(&LayerConfig::has_attention), latent_attention_rows()),
                   with(when(&LayerConfig::has_recurrence), kimi_delta_net_rows({})), mlp_rows(),
                   expert_rows(), correction_rows(), shared_expert_rows()});
       family.ignored_suffixes = {".indexer.wq_b.weight",
                                  ".indexer.wk.weight",
                                  ".indexer.k_norm.weight",
                                  ".indexer.k_norm.bias",
                                  ".indexer.weights_proj.weight",
                                  ".indexer.wq_b.weight_scale_inv",
                                  ".indexer.wk.weight_scale_inv",
                                  ".indexer.weights_proj.weight_scale_inv",
                                  ".indexer.index_kpool_compress_ape",
                                  ".indexer.index_kpool_compress_gate"};
     }},
};

}  // namespace

Lineage glm_lineage() {
  return kRows;
}

}  // namespace kvcal
