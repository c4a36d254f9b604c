#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Two thirds of intermediate_size, times a factor, rounded up to a multiple. Source: transformers
/// lfm2 `Lfm2MLP`.
void adjust_intermediate_size(const Json& config, ModelConfig& resolved) {
  if (!optional_bool(config, "block_auto_adjust_ff_dim").value_or(true)) return;
  int64_t width = 2 * resolved.intermediate_size / 3;
  const Json* factor = find_field(config, "block_ffn_dim_multiplier");
  if (factor || !config.contains("block_ffn_dim_multiplier")) {
    const double by = number_of(config, "block_ffn_dim_multiplier").value_or(1.0);
    const int64_t multiple = optional_int(config, "block_multiple_of").value_or(256);
    if (multiple < 1 || multiple > resolved.intermediate_size * 1024)
      fail("key 'block_multiple_of' is ", multiple, ", expected 1 or more");
    width = static_cast<int64_t>(by * static_cast<double>(width));
    width = (width + multiple - 1) / multiple * multiple;
  }
  if (width < 1) fail("the adjusted intermediate_size is ", width, ", expected 1 or more");
  resolved.intermediate_size = width;
}

}  // namespace

// Short convolutions, between them Llama's attention with normed heads. Source: transformers,
// models/lfm2.
Architecture lfm2_architecture() {
  return {
      .name = "lfm2",
      .model_types = {"lfm2"},
      .attention_class = "Lfm2Attention",
      .description = "LFM2 350M, 700M, 1.2B, 2.6B",
      .defaults = R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                      "tie_word_embeddings": true, "conv_L_cache": 3, "conv_bias": false})",
      .aliases = {{"rms_norm_eps", "norm_eps"},
                  {"tie_word_embeddings", "tie_embedding"},
                  {"intermediate_size", "block_ff_dim"},
                  {"attn_layer_indices", "full_attn_idxs"}},
      .switches = {{"conv_bias", &ModelConfig::mixer_bias},
                   {"conv_bias", &ModelConfig::mixer_output_bias},
                   {"conv_bias", &ModelConfig::has_conv_bias}},
      .known_keys = {"block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of",
                     "block_use_swiglu"},
      .resolve = adjust_intermediate_size,
      .recurrence = Mixer::kShortConvolution,
      .model_tensors =
          model_rows_named("embed_tokens.weight", "embedding_norm.weight", "lm_head.weight"),
      .layer_tensors = lfm2_rows(),
  };
}

}  // namespace kvcal
