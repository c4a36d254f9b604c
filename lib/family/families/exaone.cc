#include <cmath>

#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

void resolve_embedding(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  if (optional_bool(config, "mup_enabled").value_or(false))
    resolved.embedding_multiplier = std::sqrt(static_cast<float>(resolved.hidden_size));
}

constexpr FamilyRow kRows[] = {
    {"exaone4", "", "Exaone4Attention", "EXAONE 4",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5,
         "sliding_window": 4096, "sliding_window_pattern": 4})";
       family.positions = Positions::kRopeInSlidingLayers;
       family.sliding_window = SlidingWindow::kPattern;
       family.layer_tensors =
           joined({post_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()});
     }},
    // EXAONE 4's attention with norms before, DeepSeek-V3's experts.
    {"exaone_moe", "exaone4", "ExaoneMoeAttention", "K-EXAONE",
     [](Architecture& family) {
       family.defaults.merge(R"({"first_k_dense_replace": 1, "moe_intermediate_size": 1024,
         "num_experts": 64, "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 1,
         "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5})");
       family.aliases = {{"n_shared_experts", "num_shared_experts"}};
       family.switches = {{"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.expert_layers = ExpertLayers::kTyped;
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(), expert_rows(),
                   correction_rows("mlp.e_score_correction_bias"), shared_expert_rows()});
       family.ignored_prefixes = {"mtp."};
     }},
    // Gated attention, norms before and behind, sigmoid routing.
    {"afmoe", "exaone_moe", "AfmoeAttention", "Trinity",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "rms_norm_eps": 1e-5, "moe_intermediate_size": 1408,
         "num_dense_layers": 1, "num_experts": 64, "num_experts_per_tok": 6,
         "num_shared_experts": 2, "global_attn_every_n_layers": 4, "sliding_window": 1024})";
       family.aliases = {{"first_k_dense_replace", "num_dense_layers"},
                         {"n_shared_experts", "num_shared_experts"},
                         {"sliding_window_pattern", "global_attn_every_n_layers"}};
       family.switches = attention_bias_switches();
       family.numbers = {{"route_scale", &ModelConfig::routed_scaling_factor}};
       family.known_keys = {"mup_enabled", "route_norm",        "score_func",        "n_group",
                            "topk_group",  "num_expert_groups", "num_limited_groups"};
       family.resolve = resolve_embedding;
       family.has_query_gate = true;
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.group_score = GroupScore::kNone;
       family.layer_tensors = joined({{{kInputNorm, "input_layernorm.weight"},
                                       {kAttentionOutputNorm, "post_attention_layernorm.weight"},
                                       {kMlpNorm, "pre_mlp_layernorm.weight"},
                                       {kMlpOutputNorm, "post_mlp_layernorm.weight"},
                                       {kQueryGate, "self_attn.gate_proj.weight"}},
                                      attention_rows(),
                                      head_norm_rows(),
                                      mlp_rows(),
                                      expert_rows(proj_experts("mlp.router.gate.weight")),
                                      correction_rows("mlp.expert_bias"),
                                      shared_expert_rows()});
       family.ignored_prefixes = {};
     }},
};

}  // namespace

Lineage exaone_lineage() {
  return kRows;
}

}  // namespace kvcal
