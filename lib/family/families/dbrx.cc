#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Experts below each other in one matrix.
TensorRow expert_matrix(Role role, std::string_view name, Layout layout, std::string_view split) {
  const bool is_turned = layout == Layout::kInOut;
  return {.role = role,
          .name = name,
          .shape = {Dim::kExpertIntermediate, Dim::kHidden},
          .conditions = {when(&LayerConfig::is_moe)},
          .layout = is_turned ? Layout::kInOut : Layout::kOutIn,
          .repeat = Dim::kExperts,
          .split = {{role, split}},
          .is_flat = true};
}

TensorRows layer_rows() {
  return {
      {Role::kInputNorm, "norm_attn_norm.norm_1.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "norm_attn_norm.norm_2.weight", {Dim::kHidden}},
      {Role::kQueryKeyValue, "norm_attn_norm.attn.Wqkv.weight", {Dim::kQkvWidth, Dim::kHidden}},
      {Role::kOutput, "norm_attn_norm.attn.out_proj.weight", {Dim::kHidden, Dim::kAttendedWidth}},
      {Role::kRouter, "ffn.router.layer.weight", {Dim::kExperts, Dim::kHidden}},
      expert_matrix(Role::kExpertGate, "ffn.experts.mlp.w1", Layout::kOutIn,
                    "ffn.experts.mlp.{}.w1.weight"),
      expert_matrix(Role::kExpertUp, "ffn.experts.mlp.v1", Layout::kOutIn,
                    "ffn.experts.mlp.{}.v1.weight"),
      expert_matrix(Role::kExpertDown, "ffn.experts.mlp.w2", Layout::kInOut,
                    "ffn.experts.mlp.{}.w2.weight"),
  };
}

/// The experts' weights are divided by their norm of this order; only the sum is.
void resolve_experts(const Json& config, ModelConfig& resolved) {
  const Json* feed_forward = find_field(config, "ffn_config");
  const Json none = Json::object();
  const Json& nested = feed_forward && feed_forward->is_object() ? *feed_forward : none;
  const auto order = nested.find("moe_normalize_expert_weights");
  resolved.norm_topk_prob = order == nested.end() || !order->is_null();
  if (order != nested.end() && !order->is_null() && *order != 1.0)
    fail("key 'ffn_config.moe_normalize_expert_weights' is ", order->dump(),
         ", which is not supported; expected 1 or null");
  const auto function = nested.find("ffn_act_fn");
  if (function != nested.end() && function->is_object() &&
      function->value("name", "silu") != "silu")
    fail("key 'ffn_config.ffn_act_fn' is ", function->dump(),
         ", which is not supported; expected silu");
}

}  // namespace

// LayerNorms without bias, fused and clipped Q, K and V, experts below each other. Source:
// transformers, models/dbrx. theta is that of attn_config, as in vLLM; transformers 5.23 reads only
// rope_parameters, which win here, too.
Architecture dbrx_architecture() {
  return {
      .name = "dbrx",
      .model_types = {"dbrx"},
      .attention_class = "DbrxAttention",
      .description = "DBRX",
      .defaults = R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 1, "num_experts": 4,
                      "num_experts_per_tok": 1, "moe_intermediate_size": 3584,
                      "intermediate_size": 3584, "max_position_embeddings": 2048})",
      .aliases = {{"hidden_size", "d_model"},
                  {"num_attention_heads", "n_heads"},
                  {"num_hidden_layers", "n_layers"},
                  {"max_position_embeddings", "max_seq_len"},
                  {"num_key_value_heads", "attn_config.kv_n_heads"},
                  {"clip_qkv", "attn_config.clip_qkv"},
                  {"rope_theta", "attn_config.rope_theta"},
                  {"num_experts", "ffn_config.moe_num_experts"},
                  {"num_experts_per_tok", "ffn_config.moe_top_k"},
                  {"moe_intermediate_size", "ffn_config.ffn_hidden_size"},
                  {"intermediate_size", "ffn_config.ffn_hidden_size"}},
      .numbers = {{"clip_qkv", &ModelConfig::qkv_limit}},
      .fixed = {{"tie_word_embeddings", "false"}},
      .known_keys = {"emb_pdrop", "attn_config.attn_pdrop", "ffn_config.hidden_size",
                     "ffn_config.ffn_act_fn", "ffn_config.moe_normalize_expert_weights",
                     "ffn_config.moe_jitter_eps", "ffn_config.moe_loss_weight"},
      .resolve = resolve_experts,
      .centers_norm = true,
      .expert_layers = ExpertLayers::kAll,
      .prefixes = {{"transformer."}},
      .layers_name = "blocks.",
      .attention_module = "norm_attn_norm.attn",
      .model_tensors = model_rows_named("wte.weight", "norm_f.weight", "lm_head.weight"),
      .layer_tensors = layer_rows(),
  };
}

}  // namespace kvcal
