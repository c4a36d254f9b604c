#include "family/tensor_tables.h"

namespace kvcal {

// Mistral with a window in the layers that say so. Source: transformers, models/ministral.
Architecture ministral_architecture() {
  return {
      .name = "ministral",
      .model_types = {"ministral"},
      .attention_class = "MinistralAttention",
      .description = "Ministral 8B in transformers 5's spelling",
      .defaults = R"({"sliding_window": 4096})",
      .sliding_window = SlidingWindow::kAllOrTyped,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
