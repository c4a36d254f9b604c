#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Layers with experts: every moe_layer_interval-th from moe_layer_start_index to
/// moe_layer_end_index, where -1 means the last.
void resolve_ernie_layers(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  const int64_t interval = optional_int(config, "moe_layer_interval").value_or(1);
  if (interval < 1) fail("key 'moe_layer_interval' is ", interval, ", expected 1 or more");
  const int64_t first = optional_int(config, "moe_layer_start_index").value_or(1);
  const int64_t last = optional_int(config, "moe_layer_end_index").value_or(-1);
  for (int64_t i = 0; i < std::ssize(resolved.layers); ++i)
    resolved.layers[static_cast<size_t>(i)].is_moe =
        (i + 1) % interval == 0 && i >= first && (last == -1 || i <= last);
}

}  // namespace

// Softmax routing with a correction; experts in every n-th layer of a range. Source: transformers,
// models/ernie4_5_moe.
Architecture ernie4_5_moe_architecture() {
  return {
      .name = "ernie4_5_moe",
      .model_types = {"ernie4_5_moe"},
      .attention_class = "Ernie4_5_MoeAttention",
      .description = "ERNIE 4.5 21B-A3B, 300B-A47B",
      .defaults = R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000,
                      "tie_word_embeddings": true, "moe_intermediate_size": 1536, "moe_k": 6,
                      "moe_num_experts": 64, "moe_num_shared_experts": 2})",
      .aliases = {{"num_experts", "moe_num_experts"},
                  {"num_experts_per_tok", "moe_k"},
                  {"n_shared_experts", "moe_num_shared_experts"}},
      .fixed = {{"use_bias", "false"}},
      .known_keys = {"moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index",
                     "moe_norm_min", "moe_use_aux_free", "moe_capacity"},
      .resolve = resolve_ernie_layers,
      .rope_is_interleaved = true,
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               mlp_rows(),
                               expert_rows(kProjExperts),
                               {{Role::kRouterCorrection,
                                 "mlp.moe_statics.e_score_correction_bias",
                                 {Dim::kOne, Dim::kExperts},
                                 {when(&LayerConfig::is_moe)}}},
                               shared_expert_rows()}),
      .ignored_prefixes = {"model.mtp_"},
  };
}

}  // namespace kvcal
