#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Granite's experts in the names of transformers 5, which saves this family as it holds it.
constexpr StackedNames kExpertsOfGraniteSwa{"block_sparse_moe.router.weight",
                                            {},
                                            "block_sparse_moe.experts.gate_up_proj",
                                            "block_sparse_moe.experts.down_proj",
                                            kGraniteExperts.split};

}  // namespace

// Granite MoE with sinks, windows and a rope for each layer. Source: transformers,
// models/granitemoe_swa.
Architecture granitemoe_swa_architecture() {
  return {
      .name = "granitemoe_swa",
      .model_types = {"granitemoe_swa"},
      .attention_class = "GraniteMoeSWAAttention",
      .description = "Granite MoE with windows",
      .defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-6, "sliding_window": 128,
                      "sliding_window_pattern": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
                      "shared_intermediate_size": 0})",
      .aliases = {{"num_experts", "num_local_experts"},
                  {"shared_expert_intermediate_size", "shared_intermediate_size"}},
      .switches = attention_bias_switches(),
      .numbers = granite_multipliers(),
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .expert_layers = ExpertLayers::kAll,
      .positions = Positions::kRopeByLayer,
      .sliding_window = SlidingWindow::kPatternFromFirst,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               {{Role::kSinks, "self_attn.sinks", {Dim::kHeads}}},
                               stacked_expert_rows(kExpertsOfGraniteSwa),
                               stacked_shared_rows()}),
  };
}

}  // namespace kvcal
