#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Published files say the window without the query itself, and sizes of layers with a window.
void resolve_windows(const Json& config, ModelConfig& resolved) {
  const auto same = [&](std::string_view key, int64_t expected) {
    const auto found = optional_int(config, key);
    if (found && *found != expected)
      fail("key '", key, "' is ", *found, ", which is not supported; expected ", expected);
  };
  same("swa_num_attention_heads", resolved.num_attention_heads);
  same("swa_head_dim", resolved.head_dim);
  if (!resolved.layers.empty()) same("swa_v_head_dim", resolved.layers[0].attention.value_dim);
  const auto before = optional_int(config, "sliding_window_size");
  if (!before) return;
  if (*before < 0 || *before > kMaxPositions)
    fail("key 'sliding_window_size' is ", *before, ", expected 0 to ", kMaxPositions);
  for (LayerConfig& layer : resolved.layers)
    if (layer.has_window) layer.sliding_window = *before + 1;
}

}  // namespace

// V narrower than K and scaled; layers with a window have sinks, a RoPE and KV heads of their own.
// Source: transformers, models/mimo_v2_flash.
Architecture mimo_v2_flash_architecture() {
  return {
      .name = "mimo_v2_flash",
      .model_types = {"mimo_v2_flash"},
      .attention_class = "MiMoV2FlashAttention",
      .description = "MiMo-V2-Flash",
      .defaults = R"({"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
                      "rms_norm_eps": 1e-5, "attention_value_scale": 0.707,
                      "sliding_window": 129, "partial_rotary_factor": 0.334,
                      "rope_theta": 5000000.0, "rope_local_base_freq": 10000.0,
                      "first_k_dense_replace": 1, "n_routed_experts": 256,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 1,
                      "topk_group": 1, "norm_topk_prob": true})",
      .aliases = {{"num_experts", "n_routed_experts"},
                  {"rms_norm_eps", "layernorm_epsilon"},
                  {"rope_local_base_freq", "swa_rope_theta"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"attention_value_scale", &ModelConfig::value_multiplier},
                  {"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"add_swa_attention_sink_bias", "true"},
                {"add_full_attention_sink_bias", "false"},
                {"scoring_func", "\"sigmoid\""}},
      .known_keys = {"sliding_window_size", "swa_num_attention_heads", "swa_head_dim",
                     "swa_v_head_dim", "topk_method", "attention_chunk_size", "n_shared_experts"},
      .resolve = resolve_windows,
      .has_value_dim = true,
      .has_window_heads = true,
      .expert_layers = ExpertLayers::kTyped,
      .local_rope = LocalRope::kOwnTheta,
      .sliding_window = SlidingWindow::kHybridPattern,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               {{Role::kSinks,
                                 "self_attn.attention_sink_bias",
                                 {Dim::kHeads},
                                 {when(&LayerConfig::has_window)}}},
                               mlp_rows(),
                               expert_rows(kProjExperts),
                               correction_rows()}),
      .ignored_prefixes = {"model.mtp."},
  };
}

}  // namespace kvcal
