#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows shared_mlp_rows() {
  const Condition moe = when(&LayerConfig::is_moe), dense = unless(&LayerConfig::is_moe);
  return {
      {Role::kSharedGateUp,
       "shared_mlp.input_linear.weight",
       {Dim::kSharedGateUpWidth, Dim::kHidden},
       {moe}},
      {Role::kSharedDown,
       "shared_mlp.output_linear.weight",
       {Dim::kHidden, Dim::kSharedIntermediate},
       {moe}},
      {Role::kGateUp, "shared_mlp.input_linear.weight", {Dim::kGateUpWidth, Dim::kHidden}, {dense}},
      {Role::kDown, "shared_mlp.output_linear.weight", {Dim::kHidden, Dim::kIntermediate}, {dense}},
  };
}

/// Without experts the shared MLP is the only one; positions are optional.
void resolve_layers(const Json& json, ModelConfig& config) {
  config.norm_topk_prob = true;
  if (config.moe.num_experts == 0) config.intermediate_size = config.moe.shared_intermediate_size;
  if (optional_string(json, "position_embedding_type").value_or("") != "rope")
    for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
}

}  // namespace

// Granite whose layers are Mamba 2 or attention. Source: transformers, models/granitemoehybrid.
Architecture granitemoehybrid_architecture() {
  return {
      .name = "granitemoehybrid",
      .model_types = {"granitemoehybrid"},
      .attention_class = "GraniteMoeHybridAttention",
      .description = "Granite 4",
      .defaults = R"({"attention_multiplier": 1.0, "num_local_experts": 8,
                      "num_experts_per_tok": 2, "shared_intermediate_size": 1024,
                      "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
                      "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true})",
      .aliases = {{"num_experts", "num_local_experts"},
                  {"mamba_num_heads", "mamba_n_heads"},
                  {"mamba_head_dim", "mamba_d_head"},
                  {"shared_expert_intermediate_size", "shared_intermediate_size"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"mamba_proj_bias", &ModelConfig::mixer_bias},
                   {"mamba_proj_bias", &ModelConfig::mixer_output_bias},
                   {"mamba_conv_bias", &ModelConfig::has_conv_bias}},
      .numbers = granite_multipliers(),
      .known_keys = {"position_embedding_type", "normalization_function"},
      .resolve = resolve_layers,
      .recurrence = Mixer::kMamba2,
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), attention_rows()),
                  mamba2_rows(kMamba), stacked_expert_rows(), shared_mlp_rows()}),
  };
}

}  // namespace kvcal
