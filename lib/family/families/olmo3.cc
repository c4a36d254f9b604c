#include "family/tensor_tables.h"

namespace kvcal {

// OLMo 2 with windows. Source: transformers, models/olmo3.
Architecture olmo3_architecture() {
  return {
      .name = "olmo3",
      .model_types = {"olmo3"},
      .attention_class = "Olmo3Attention",
      .description = "OLMo 3",
      .defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
                      "rope_theta": 500000})",
      .switches = attention_bias_switches(),
      .local_rope = LocalRope::kUnscaled,
      .sliding_window = SlidingWindow::kPattern,
      .qk_norm = QkNorm::kWhole,
      .model_tensors = model_rows(),
      .layer_tensors = joined({post_norm_rows(), attention_rows(), whole_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
