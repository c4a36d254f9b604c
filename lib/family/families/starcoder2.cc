#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/starcoder2.
Architecture starcoder2_architecture() {
  return {
      .name = "starcoder2",
      .model_types = {"starcoder2"},
      .attention_class = "Starcoder2Attention",
      .description = "StarCoder2",
      .defaults = R"({"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
                      "norm_epsilon": 1e-5, "use_bias": true, "tie_word_embeddings": true})",
      .aliases = {{"rms_norm_eps", "norm_epsilon"}},
      .switches = {{"use_bias", &ModelConfig::attention_bias},
                   {"use_bias", &ModelConfig::output_bias},
                   {"use_bias", &ModelConfig::mlp_bias}},
      .known_keys = {"mlp_type", "norm_type"},
      .centers_norm = true,
      .sliding_window = SlidingWindow::kAllLayers,
      .model_tensors =
          joined({model_rows(), {{Role::kFinalNormBias, "norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                               plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias",
                                              "mlp.c_proj.weight", "mlp.c_proj.bias")}),
  };
}

}  // namespace kvcal
