#include "family/tensor_tables.h"

namespace kvcal {

// Llama with four multipliers. Source: transformers, models/granite.
Architecture granite_architecture() {
  return {
      .name = "granite",
      .model_types = {"granite"},
      .attention_class = "GraniteAttention",
      .description = "Granite 3 and later, dense",
      .defaults = R"({"attention_multiplier": 1.0})",
      .switches = bias_switches(),
      .numbers = granite_multipliers(),
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
