#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/jais2.
Architecture jais2_architecture() {
  return {
      .name = "jais2",
      .model_types = {"jais2"},
      .attention_class = "Jais2Attention",
      .description = "Jais 2",
      .defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "attention_bias": true,
                      "mlp_bias": true, "max_position_embeddings": 8192})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = bias_switches(),
      .centers_norm = true,
      .model_tensors =
          joined({model_rows(), {{Role::kFinalNormBias, "norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                               plain_mlp_rows("mlp.up_proj.weight", "mlp.up_proj.bias",
                                              "mlp.down_proj.weight", "mlp.down_proj.bias")}),
  };
}

}  // namespace kvcal
