#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows own_head_norm_rows() {
  const Condition normed = when(&ModelConfig::has_qk_norm);
  return {
      {kQueryNorm, "self_attn.q_norm.weight", {Dim::kHeads, Dim::kHeadDim}, {normed}},
      {kKeyNorm, "self_attn.k_norm.weight", {Dim::kKvHeads, Dim::kHeadDim}, {normed}},
  };
}

void resolve_routing(const Json& config, ModelConfig& resolved) {
  const std::string score = optional_string(config, "expert_selection_fn").value_or("softmax");
  if (score != "softmax" && score != "sigmoid")
    fail("key 'expert_selection_fn' is '", score, "', expected softmax or sigmoid");
  resolved.moe.score = score == "sigmoid" ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  // A softmax over the chosen logits is that over all, normalised.
  if (score == "softmax") resolved.norm_topk_prob = true;
  const std::string how =
      optional_string(config, "shared_expert_combination_strategy").value_or("average");
  if (how != "average" && how != "sum")
    fail("key 'shared_expert_combination_strategy' is '", how, "', expected average or sum");
  if (how == "average" && resolved.has_shared_expert)
    resolved.routed_scaling_factor = resolved.moe.shared_multiplier = 0.5f;
}

void resolve(const Json& config, ModelConfig& resolved) {
  share_parallel_norm(config, resolved);
  resolve_routing(config, resolved);
  if (const auto epsilon = number_of(config, "rms_norm_eps")) {
    resolved.centers_norm = false;
    resolved.norm_eps = static_cast<float>(*epsilon);
  }
  const auto width = optional_int(config, "prefix_dense_intermediate_size");
  if (!width) return;
  if (*width < 1 || *width > kMaxWidth)
    fail("key 'prefix_dense_intermediate_size' is ", *width, ", expected 1 to ", kMaxWidth);
  for (LayerConfig& layer : resolved.layers)
    if (!layer.is_moe) layer.intermediate_size = *width;
}

constexpr FamilyRow kRows[] = {
    {"cohere", "", "CohereAttention", "Command-R, Command-R+, Aya",
     [](Architecture& family) {
       family.defaults = R"({"rope_theta": 500000, "logit_scale": 0.0625, "layer_norm_eps": 1e-5,
         "tie_word_embeddings": true, "max_position_embeddings": 8192})";
       family.aliases = {{"rms_norm_eps", "layer_norm_eps"}};
       family.switches = attention_bias_switches({{"use_qk_norm", &ModelConfig::has_qk_norm}});
       family.numbers = {{"logit_scale", &ModelConfig::logits_multiplier}};
       family.resolve = share_parallel_norm;
       family.centers_norm = true;
       family.rope_is_interleaved = true;
       family.qk_norm = QkNorm::kPerHeadOwnWeight;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), own_head_norm_rows(), mlp_rows()});
     }},
    {"cohere2", "cohere", "Cohere2Attention", "Command R7B, Command A",
     [](Architecture& family) {
       family.defaults.merge(R"({"rope_theta": null, "sliding_window": 4096,
         "sliding_window_pattern": 4})");
       family.switches = attention_bias_switches();
       family.fixed = {{"use_qk_norm", "false"}};
       family.known_keys = {"order_of_interleaved_layers", "rotary_pct",
                            "position_embedding_type",     "use_gated_activation",
                            "use_parallel_block",          "use_embedding_sharing"};
       family.positions = Positions::kRopeInSlidingLayers;
       family.sliding_window = SlidingWindow::kPattern;
       family.qk_norm = QkNorm::kPerHead;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()});
     }},
    // Cohere 2 with experts behind a few dense layers.
    {"cohere2_moe", "cohere2", "Cohere2MoeAttention", "Command with experts",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "logit_scale": 0.0625, "layer_norm_eps": 1e-5,
         "tie_word_embeddings": true, "max_position_embeddings": 8192, "sliding_window": 4096,
         "sliding_window_pattern": 4, "prefix_dense_sliding_window_pattern": 1,
         "first_k_dense_replace": 0, "num_experts": 8, "num_experts_per_tok": 2,
         "num_shared_experts": 0, "norm_topk_prob": true})";
       add(family.aliases, {{"n_shared_experts", "num_shared_experts"}});
       add(family.switches, {{"norm_topk_prob", &ModelConfig::norm_topk_prob}});
       // transformers has the key, and reads rope_parameters alone.
       family.fixed = {{"rope_scaling", "null"}};
       family.known_keys = {"expert_selection_fn", "shared_expert_combination_strategy",
                            "prefix_dense_intermediate_size"};
       family.resolve = resolve;
       family.expert_layers = ExpertLayers::kTyped;
       family.positions = Positions::kRopeInSlidingOrDenseLayers;
       family.sliding_window = SlidingWindow::kPatternAfterDense;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(), mlp_rows(), expert_rows(), shared_expert_rows()});
     }},
    // Command R7B's layers; each type of layer has a rope of its own or, where that is null, none.
    {"cohere_compass", "cohere2", "CohereCompassAttention",
     "North Micro, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"cohere_compass_text"};
       family.defaults = R"({"layer_norm_eps": 1e-5, "tie_word_embeddings": true,
         "sliding_window": 4096, "max_position_embeddings": 8192})";
       family.text_defaults = R"({"vocab_size": 256000, "hidden_size": 8192,
         "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64})";
       family.fixed = {};
       family.known_keys = {"pooling"};
       family.rope_is_interleaved = false;
       family.positions = Positions::kRopeByLayerType;
       family.sliding_window = SlidingWindow::kTyped;
     }},
};

}  // namespace

Lineage cohere_lineage() {
  return kRows;
}

}  // namespace kvcal
