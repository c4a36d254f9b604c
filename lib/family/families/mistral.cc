#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/mistral.
Architecture mistral_architecture() {
  return {
      .name = "mistral",
      .model_types = {"mistral"},
      .wrapper_types = {"mistral3"},
      .attention_class = "MistralAttention",
      .description = "Mistral 7B, Nemo, Small 3, Ministral 8B",
      .sliding_window = SlidingWindow::kAllLayers,
      .prefixes = wrapped_prefixes(),
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
      .ignored_prefixes = vision_prefixes(),
  };
}

}  // namespace kvcal
