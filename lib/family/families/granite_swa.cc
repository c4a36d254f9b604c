#include "family/tensor_tables.h"

namespace kvcal {

// Granite with sinks, windows and a rope for each layer. Source: transformers, models/granite_swa.
Architecture granite_swa_architecture() {
  return {
      .name = "granite_swa",
      .model_types = {"granite_swa"},
      .attention_class = "GraniteSWAAttention",
      .description = "Granite with windows",
      .defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-5, "sliding_window": 128,
                      "sliding_window_pattern": 4, "num_key_value_heads": 4,
                      "tie_word_embeddings": true})",
      .switches = bias_switches(),
      .numbers = granite_multipliers(),
      .positions = Positions::kRopeByLayer,
      .sliding_window = SlidingWindow::kPatternFromFirst,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               {{Role::kSinks, "self_attn.sinks", {Dim::kHeads}}},
                               mlp_rows()}),
  };
}

}  // namespace kvcal
