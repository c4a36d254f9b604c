#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/exaone4.
Architecture exaone4_architecture() {
  return {
      .name = "exaone4",
      .model_types = {"exaone4"},
      .attention_class = "Exaone4Attention",
      .description = "EXAONE 4",
      .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096,
                      "sliding_window_pattern": 4})",
      .positions = Positions::kRopeInSlidingLayers,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = model_rows(),
      .layer_tensors = joined({post_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
