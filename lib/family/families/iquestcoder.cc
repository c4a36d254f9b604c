#include "family/tensor_tables.h"

namespace kvcal {

// Llama with other defaults. Source: transformers, models/iquestcoder.
Architecture iquestcoder_architecture() {
  return {
      .name = "iquestcoder",
      .model_types = {"iquestcoder"},
      .attention_class = "LlamaAttention",
      .description = "IQuest-Coder",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5})",
      .switches = bias_switches(),
      .fixed = {{"clip_qkv", "null"}, {"use_sliding_window", "false"}},
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
