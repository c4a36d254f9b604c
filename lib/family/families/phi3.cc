#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/phi3.
Architecture phi3_architecture() {
  return {
      .name = "phi3",
      .model_types = {"phi3"},
      .attention_class = "Phi3Attention",
      .description = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
      .defaults = R"({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096,
                      "partial_rotary_factor": 1.0})",
      // Phi-4-multimodal has the last two beside the text model's keys.
      .known_keys = {"attention_bias", "vision_config", "audio_config"},
      .sliding_window = SlidingWindow::kAllLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {pre_norm_rows(),
           {{Role::kQueryKeyValue, "self_attn.qkv_proj.weight", {Dim::kQkvWidth, Dim::kHidden}},
            {Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}}},
           fused_mlp_rows()}),
  };
}

}  // namespace kvcal
