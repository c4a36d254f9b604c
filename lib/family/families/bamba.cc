#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows mlp_rows_of_bamba() {
  const Condition biased = when(&ModelConfig::mlp_bias);
  return {
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "pre_ff_layernorm.weight", {Dim::kHidden}},
      {Role::kGate, "feed_forward.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUp, "feed_forward.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kDown, "feed_forward.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
      {Role::kGateBias, "feed_forward.gate_proj.bias", {Dim::kIntermediate}, {biased}},
      {Role::kUpBias, "feed_forward.up_proj.bias", {Dim::kIntermediate}, {biased}},
      {Role::kDownBias, "feed_forward.down_proj.bias", {Dim::kHidden}, {biased}},
  };
}

/// Half of each head turns, whatever the key says beside the rope's own. Source: transformers 5.23
/// `BambaConfig.__post_init__`.
void resolve_share(const Json& json, ModelConfig& config) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const Json* rope = find_field(json, key))
      if (find_field(*rope, "partial_rotary_factor")) return;
  if (config.head_dim % 4 != 0)
    fail("head_dim is ", config.head_dim, ", expected a multiple of 4: half of it turns");
  for (RopeConfig& rope : config.ropes)
    (rope.type == RopeConfig::Type::kProportional ? rope.turning_dim : rope.rotary_dim) =
        config.head_dim / 2;
}

}  // namespace

// Source: transformers, models/bamba.
Architecture bamba_architecture() {
  return {
      .name = "bamba",
      .model_types = {"bamba"},
      .attention_class = "BambaAttention",
      .description = "Bamba",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_n_heads": 128,
                      "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
                      "mamba_expand": 2, "mamba_conv_bias": true, "max_position_embeddings": 262144,
                      "attn_layer_indices": [], "partial_rotary_factor": 0.5})",
      .aliases = {{"mamba_num_heads", "mamba_n_heads"}, {"mamba_head_dim", "mamba_d_head"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias},
                   {"mamba_proj_bias", &ModelConfig::mixer_bias},
                   {"mamba_proj_bias", &ModelConfig::mixer_output_bias},
                   {"mamba_conv_bias", &ModelConfig::has_conv_bias}},
      .known_keys = {"attn_rotary_emb"},
      .resolve = resolve_share,
      .recurrence = Mixer::kMamba2,
      .model_tensors =
          model_rows_named("embed_tokens.weight", "final_layernorm.weight", "lm_head.weight"),
      .layer_tensors = joined({with(when(&LayerConfig::has_attention), attention_rows()),
                               mamba2_rows(kMamba), mlp_rows_of_bamba()}),
  };
}

}  // namespace kvcal
