#include "family/tensor_tables.h"

namespace kvcal {

// Llama whose MLP is a squared ReLU without a gate. Source: transformers, models/arcee.
Architecture arcee_architecture() {
  return {
      .name = "arcee",
      .model_types = {"arcee"},
      .attention_class = "ArceeAttention",
      .description = "AFM 4.5B",
      .defaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5})",
      .switches = bias_switches(),
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(),
                               plain_mlp_rows("mlp.up_proj.weight", "mlp.up_proj.bias",
                                              "mlp.down_proj.weight", "mlp.down_proj.bias")}),
  };
}

}  // namespace kvcal
