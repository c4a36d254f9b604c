#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Rows of the experts. Names of split experts are llm-compressor's; gate has the even columns, up
/// the odd ones.
TensorRows expert_rows_of_gpt_oss() {
  return {
      {Role::kRouter, "mlp.router.weight", {Dim::kExperts, Dim::kHidden}},
      {Role::kRouterBias, "mlp.router.bias", {Dim::kExperts}},
      {Role::kExpertGateUp,
       "mlp.experts.gate_up_proj",
       {Dim::kHidden, Dim::kExpertGateUpWidth},
       {},
       Layout::kInOutInterleaved,
       Dim::kExperts,
       {{Role::kExpertGate, "mlp.experts.{}.gate_proj.weight"},
        {Role::kExpertUp, "mlp.experts.{}.up_proj.weight"}}},
      {Role::kExpertGateUpBias,
       "mlp.experts.gate_up_proj_bias",
       {Dim::kExpertGateUpWidth},
       {},
       Layout::kOutInterleaved,
       Dim::kExperts,
       {{Role::kExpertGateBias, "mlp.experts.{}.gate_proj.bias"},
        {Role::kExpertUpBias, "mlp.experts.{}.up_proj.bias"}}},
      {Role::kExpertDown,
       "mlp.experts.down_proj",
       {Dim::kExpertIntermediate, Dim::kHidden},
       {},
       Layout::kInOut,
       Dim::kExperts,
       {{Role::kExpertDown, "mlp.experts.{}.down_proj.weight"}}},
      {Role::kExpertDownBias,
       "mlp.experts.down_proj_bias",
       {Dim::kHidden},
       {},
       Layout::kOutIn,
       Dim::kExperts,
       {{Role::kExpertDownBias, "mlp.experts.{}.down_proj.bias"}}},
  };
}

}  // namespace

// Source: transformers, models/gpt_oss.
Architecture gpt_oss_architecture() {
  return {
      .name = "gpt_oss",
      .model_types = {"gpt_oss"},
      .attention_class = "GptOssAttention",
      .description = "gpt-oss in 16 bits",
      .defaults = R"({"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128,
                      "sliding_window_pattern": 2, "rms_norm_eps": 1e-5, "rope_theta": 150000,
                      "num_local_experts": 128, "num_experts_per_tok": 4, "attention_bias": true,
                      "swiglu_limit": 7.0})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = attention_bias_switches(),
      .numbers = {{"swiglu_limit", &ModelConfig::activation_limit}},
      // hidden_act is "silu"; the experts use x · sigmoid(1.702 x).
      .known_keys = {"experts_per_token", "initial_context_length"},
      .resolve =
          [](const Json& json, ModelConfig& config) {
            const int64_t count = config.moe.experts_per_token;
            const int64_t second = optional_int(json, "experts_per_token").value_or(count);
            if (second != count)
              fail("key 'experts_per_token' is ", second, ", expected num_experts_per_tok ", count);
            config.activation = Activation::kQuickGelu;
            config.norm_topk_prob = true;
          },
      .expert_layers = ExpertLayers::kAll,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               {{Role::kSinks, "self_attn.sinks", {Dim::kHeads}}},
                               expert_rows_of_gpt_oss()}),
  };
}

}  // namespace kvcal
