#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

namespace {

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

}  // namespace

// Cohere 2 with experts behind a few dense layers. Source: transformers, models/cohere2_moe.
Architecture cohere2_moe_architecture() {
  return {
      .name = "cohere2_moe",
      .model_types = {"cohere2_moe"},
      .attention_class = "Cohere2MoeAttention",
      .description = "Command with experts",
      .defaults = R"({"head_dim": 128, "logit_scale": 0.0625, "layer_norm_eps": 1e-5,
                      "tie_word_embeddings": true, "max_position_embeddings": 8192,
                      "sliding_window": 4096, "sliding_window_pattern": 4,
                      "prefix_dense_sliding_window_pattern": 1, "first_k_dense_replace": 0,
                      "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 0,
                      "norm_topk_prob": true})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}, {"n_shared_experts", "num_shared_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"logit_scale", &ModelConfig::logits_multiplier}},
      // transformers has the key, and reads rope_parameters alone.
      .fixed = {{"rope_scaling", "null"}},
      .known_keys = {"expert_selection_fn", "shared_expert_combination_strategy",
                     "prefix_dense_intermediate_size"},
      .resolve = resolve,
      .centers_norm = true,
      .rope_is_interleaved = true,
      .expert_layers = ExpertLayers::kTyped,
      .positions = Positions::kRopeInSlidingOrDenseLayers,
      .sliding_window = SlidingWindow::kPatternAfterDense,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), shared_expert_rows()}),
  };
}

}  // namespace kvcal
