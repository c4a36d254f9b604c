#include "family/tensor_tables.h"

namespace kvcal {

// Norms of Q and K behind RoPE, whose theta a fixed alpha raises. Source: transformers,
// models/hunyuan_v1_dense.
Architecture hunyuan_v1_dense_architecture() {
  return {
      .name = "hunyuan_v1_dense",
      .model_types = {"hunyuan_v1_dense"},
      .attention_class = "HunYuanDenseV1Attention",
      .description = "Hunyuan 0.5B, 1.8B, 4B, 7B",
      .defaults = R"({"rms_norm_eps": 1e-5})",
      .switches = attention_bias_switches(),
      .known_keys = {"use_qk_norm"},
      .norms_after_rope = true,
      .has_rope_alpha = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {pre_norm_rows(), attention_rows(),
           head_norm_rows("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight"),
           mlp_rows()}),
  };
}

}  // namespace kvcal
