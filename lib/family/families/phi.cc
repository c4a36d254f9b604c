#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows phi_layer_rows() {
  return joined({
      {{kInputNorm, "input_layernorm.weight"},
       {kInputNormBias, "input_layernorm.bias"},
       {kOutput, "self_attn.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {kOutputBias, "self_attn.dense.bias"}},
      query_key_value_rows(),
      with(when(&ModelConfig::has_qk_norm),
           joined({head_norm_rows("self_attn.q_layernorm.weight", "self_attn.k_layernorm.weight"),
                   {{kQueryNormBias, "self_attn.q_layernorm.bias"},
                    {kKeyNormBias, "self_attn.k_layernorm.bias"}}})),
      plain_mlp_rows("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"),
  });
}

/// Refuses a trained length beside the ropes that is not the one in them: other families take the
/// former. Source: transformers 5.24 `PhimoeConfig.validate_rope`, which takes the latter.
void check_trained_length(const Json& json, ModelConfig& config) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  const auto outside = optional_int(json, kKey);
  for (const std::string_view ropes : {"rope_scaling", "rope_parameters"}) {
    const Json* object = find_field(json, ropes);
    if (!outside || !object || object->empty()) continue;
    const int64_t inside = optional_int(*object, kKey).value_or(config.max_position_embeddings);
    if (inside != *outside)
      fail("key '", kKey, "' is ", *outside, ", and in '", ropes, "' ", inside,
           "; expected the same in both");
  }
}

constexpr FamilyRow kRows[] = {
    {"phi", "", "PhiAttention", "Phi-1, Phi-1.5, Phi-2",
     [](Architecture& family) {
       family.defaults = R"({"partial_rotary_factor": 0.5, "hidden_act": "gelu_new",
         "layer_norm_eps": 1e-5})";
       family.aliases = {{"rms_norm_eps", "layer_norm_eps"}};
       family.switches = {{"qk_layernorm", &ModelConfig::has_qk_norm}};
       family.resolve = [](const Json&, ModelConfig& config) {
         config.parallel_residual = true;
         config.has_mlp_norm = false;
         config.attention_bias = config.mlp_bias = config.lm_head_bias = true;
       };
       family.centers_norm = true;
       family.model_tensors =
           joined({model_rows("embed_tokens.weight", "final_layernorm.weight"),
                   {{kFinalNormBias, "final_layernorm.bias"}, {kLmHeadBias, "lm_head.bias"}}});
       family.layer_tensors = phi_layer_rows();
     }},
    {"phi3", "", "Phi3Attention", "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
     [](Architecture& family) {
       family.defaults = R"({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096,
         "partial_rotary_factor": 1.0})";
       // Phi-4-multimodal has the last two beside the text model's keys.
       family.known_keys = {"attention_bias", "vision_config", "audio_config"};
       family.prepare = [](Json& config) {
         if (config.value("model_type", Json()) == "phi4_multimodal" &&
             !config.contains("num_key_value_heads"))
           config["num_key_value_heads"] = 8;
         // Older files call longrope so.
         for (const char* ropes : {"rope_scaling", "rope_parameters"})
           for (const char* key : {"type", "rope_type"})
             if (const auto rope = config.find(ropes); rope != config.end() && rope->is_object())
               if (rope->value(key, Json()) == "yarn") (*rope)[key] = "longrope";
       };
       family.sliding_window = SlidingWindow::kAllLayers;
       family.layer_tensors =
           joined({pre_norm_rows(),
                   {{kQueryKeyValue, "self_attn.qkv_proj.weight"},
                    {kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}}},
                   fused_mlp_rows()});
     }},
    {"phimoe", "mixtral", "PhimoeAttention", "Phi-3.5-MoE",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_local_experts": 16, "router_jitter_noise": 0.01})");
       family.switches = attention_bias_switches({{"lm_head_bias", &ModelConfig::lm_head_bias}});
       family.numbers = {{"router_jitter_noise", &ModelConfig::router_jitter}};
       family.resolve = check_trained_length;
       family.centers_norm = true;
       family.router_score = RouterScore::kSparseMixer;
       family.model_tensors =
           joined({model_rows(),
                   {{kFinalNormBias, "norm.bias"},
                    {kLmHeadBias, "lm_head.bias", {}, {when(&ModelConfig::lm_head_bias)}}}});
       family.layer_tensors = joined(
           {pre_norm_rows(), pre_norm_bias_rows(), attention_rows(), expert_rows(kMixtralExperts)});
     }},
};

}  // namespace

Lineage phi_lineage() {
  return kRows;
}

}  // namespace kvcal
