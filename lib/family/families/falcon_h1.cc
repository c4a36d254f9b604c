#include "family/tensor_tables.h"

namespace kvcal {
namespace {

/// A list of so many positive numbers; nullopt where the key is absent or null.
std::optional<std::vector<float>> multipliers(const Json& json, std::string_view key,
                                              size_t count) {
  const Json* list = find_field(json, key);
  if (!list || list->is_null()) return std::nullopt;
  if (!list->is_array() || list->size() != count)
    fail("key '", key, "' is ", list->dump(), ", expected ", count, " numbers");
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(number_at(*list, i, key)));
  return values;
}

void resolve_multipliers(const Json& json, ModelConfig& config) {
  if (const auto mlp = multipliers(json, "mlp_multipliers", 2)) {
    config.gate_multiplier = mlp->at(0);
    config.mlp_output_multiplier = mlp->at(1);
  }
  if (const auto mixer = multipliers(json, "ssm_multipliers", MixerMultipliers().size()))
    std::ranges::copy(*mixer, config.recurrent.in_multipliers.begin());
}

TensorRows mlp_rows_of_falcon_h1() {
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

}  // namespace

// Mamba 2 and attention of the same input in every layer, with multipliers of each branch. Source:
// transformers 5.23, models/falcon_h1.
Architecture falcon_h1_architecture() {
  return {
      .name = "falcon_h1",
      .model_types = {"falcon_h1"},
      .attention_class = "FalconH1Attention",
      .description = "Falcon-H1",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024,
                      "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
                      "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
                      "mamba_norm_before_gate": true, "mamba_rms_norm": false,
                      "max_position_embeddings": 8192})",
      .aliases = {{"mamba_num_heads", "mamba_n_heads"}, {"mamba_head_dim", "mamba_d_head"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias},
                   {"mamba_proj_bias", &ModelConfig::mixer_bias},
                   {"projectors_bias", &ModelConfig::mixer_output_bias},
                   {"mamba_conv_bias", &ModelConfig::has_conv_bias},
                   {"mamba_rms_norm", &ModelConfig::has_mixer_norm},
                   {"mamba_norm_before_gate", &ModelConfig::norms_before_gate}},
      .numbers = {{"embedding_multiplier", &ModelConfig::embedding_multiplier},
                  {"lm_head_multiplier", &ModelConfig::logits_multiplier},
                  {"attention_in_multiplier", &ModelConfig::attention_input_multiplier},
                  {"attention_out_multiplier", &ModelConfig::attention_output_multiplier},
                  {"key_multiplier", &ModelConfig::key_multiplier},
                  {"ssm_in_multiplier", &ModelConfig::mixer_input_multiplier},
                  {"ssm_out_multiplier", &ModelConfig::mixer_output_multiplier}},
      .fixed = {{"hidden_act", "\"silu\""}},
      .known_keys = {"mlp_multipliers", "ssm_multipliers", "mamba_use_mlp"},
      .resolve = resolve_multipliers,
      .recurrence = Mixer::kMamba2,
      .mixes_beside_attention = true,
      .model_tensors =
          model_rows_named("embed_tokens.weight", "final_layernorm.weight", "lm_head.weight"),
      .layer_tensors = joined({attention_rows(), mamba2_rows(kMamba), mlp_rows_of_falcon_h1()}),
  };
}

}  // namespace kvcal
