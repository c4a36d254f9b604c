#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/olmo2.
Architecture olmo2_architecture() {
  return {
      .name = "olmo2",
      .model_types = {"olmo2"},
      .attention_class = "Olmo2Attention",
      .description = "OLMo 2",
      .defaults = R"({"rms_norm_eps": 1e-5})",
      .switches = attention_bias_switches(),
      .qk_norm = QkNorm::kWhole,
      .model_tensors = model_rows(),
      .layer_tensors = joined({post_norm_rows(), attention_rows(), whole_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
