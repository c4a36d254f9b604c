#include "family/tensor_tables.h"

namespace kvcal {

// Gated delta nets with a projection for each of their inputs, every fourth layer gated attention.
// Source: transformers, models/qwen3_5.
Architecture qwen3_5_architecture() {
  return {
      .name = "qwen3_5",
      .model_types = {"qwen3_5_text"},
      .attention_class = "Qwen3_5Attention",
      .description = "Qwen3.5, Qwen3.6, dense",
      .defaults = R"({"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25,
                      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                      "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                      "linear_num_value_heads": 32, "full_attention_interval": 4})",
      .text_defaults = R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
                           "num_hidden_layers": 32, "num_attention_heads": 16,
                           "max_position_embeddings": 32768})",
      .fixed = {{"attention_bias", "false"}},
      .known_keys = {"attn_output_gate"},
      .norm_adds_one = true,
      .has_query_gate = true,
      .draft = DraftLayer::kMtp,
      .recurrence = Mixer::kDeltaNet,
      .prefixes = {{"model."}, {"model.language_model."}},
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
                  with(when(&LayerConfig::has_recurrence), split_delta_net_rows()), mlp_rows()}),
      .ignored_prefixes = {"mtp."},
  };
}

}  // namespace kvcal
