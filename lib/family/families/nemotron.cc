#include "family/tensor_tables.h"

namespace kvcal {

// LayerNorm of 1 + w, squared ReLU without a gate. Source: transformers, models/nemotron.
Architecture nemotron_architecture() {
  return {
      .name = "nemotron",
      .model_types = {"nemotron"},
      .attention_class = "NemotronAttention",
      .description = "Nemotron 4, Minitron",
      .defaults = R"({"hidden_act": "relu2", "norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
      .aliases = {{"rms_norm_eps", "norm_eps"}},
      .switches = bias_switches(),
      .centers_norm = true,
      .norm_adds_one = true,
      .model_tensors =
          joined({model_rows(), {{Role::kFinalNormBias, "norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                               plain_mlp_rows("mlp.up_proj.weight", "mlp.up_proj.bias",
                                              "mlp.down_proj.weight", "mlp.down_proj.bias")}),
  };
}

}  // namespace kvcal
