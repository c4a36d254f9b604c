#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Published names of the stacked experts, and those that transformers saves.
constexpr StackedNames kPublished{"mlp.router.weight", "mlp.router", "mlp.experts.fc1.weight",
                                  "mlp.experts.fc2.weight", kSplitExperts};
constexpr StackedNames kSaved{"mlp.router.weight", "mlp.router", "mlp.experts.gate_up_proj",
                              "mlp.experts.down_proj", kSplitExperts};

}  // namespace

// Llama with experts, whose router takes the softmax of the chosen alone. Source: transformers,
// models/aria.
Architecture aria_architecture() {
  return {
      .name = "aria",
      .model_types = {"aria_text"},
      .attention_class = "AriaTextAttention",
      .description = "text model of Aria",
      .defaults = R"({"moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2})",
      .text_defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 4096,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "max_position_embeddings": 2048})",
      .aliases = {{"num_experts", "moe_num_experts"},
                  {"num_experts_per_tok", "moe_topk"},
                  {"n_shared_experts", "moe_num_shared_experts"},
                  {"moe_intermediate_size", "intermediate_size"}},
      .switches = bias_switches(),
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {pre_norm_rows(), attention_rows(),
           with(unless(&ModelConfig::has_saved_names),
                stacked_expert_rows(kPublished, Layout::kInOut)),
           with(when(&ModelConfig::has_saved_names), stacked_expert_rows(kSaved, Layout::kInOut)),
           shared_expert_rows()}),
  };
}

}  // namespace kvcal
