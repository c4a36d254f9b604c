#include <cmath>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// The indexer of DeepSeek's sparse attention.
TensorRows indexer_rows() {
  return with(when(&LayerConfig::has_indexer),
              {
                  {kIndexerQuery, "self_attn.indexer.wq_b.weight"},
                  {kIndexerKey, "self_attn.indexer.wk.weight"},
                  {kIndexerKeyNorm, "self_attn.indexer.k_norm.weight"},
                  {kIndexerKeyNormBias, "self_attn.indexer.k_norm.bias"},
                  {kIndexerWeights, "self_attn.indexer.weights_proj.weight"},
              });
}

/// Its tensors, which checkpoints also hold for layers that use the selection of another layer.
std::vector<std::string_view> indexer_suffixes() {
  return {".indexer.wq_b.weight",         ".indexer.wq_b.weight_scale_inv",
          ".indexer.wk.weight",           ".indexer.wk.weight_scale_inv",
          ".indexer.k_norm.weight",       ".indexer.k_norm.bias",
          ".indexer.weights_proj.weight", ".indexer.weights_proj.weight_scale_inv"};
}

void check_method(const Json& config, ModelConfig&) {
  const std::string method = optional_string(config, "topk_method").value_or("greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    fail("key 'topk_method' is '", method, "', expected greedy or group_limited_greedy");
}

/// Multipliers of the model's size: scale_depth / sqrt(layers), and dim_model_base / hidden_size
/// for the input of lm_head; 1 where the keys are null.
void resolve_multipliers(const Json& config, ModelConfig& resolved) {
  const auto is_null = [&](std::string_view key) {
    const auto it = config.find(std::string(key));
    return it != config.end() && it->is_null();
  };
  if (!is_null("scale_depth"))
    resolved.residual_multiplier /= std::sqrt(static_cast<float>(resolved.num_hidden_layers));
  if (!is_null("dim_model_base"))
    resolved.head_input_multiplier /= static_cast<float>(resolved.hidden_size);
}

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

constexpr FamilyRow kRows[] = {
    {"deepseek_v2", "", "DeepseekV2Attention", "DeepSeek-V2, V2-Lite, V2.5, Coder-V2",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
         "moe_intermediate_size": 1407, "first_k_dense_replace": 0, "topk_method": "greedy"})";
       family.aliases = {{"num_experts", "n_routed_experts"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"mlp_bias", &ModelConfig::mlp_bias}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.fixed = {
           {"norm_topk_prob", "false"}, {"moe_layer_freq", "1"}, {"scoring_func", "\"softmax\""}};
       family.resolve = check_method;
       family.rope_is_interleaved = true;
       family.has_latent_attention = true;
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.group_score = GroupScore::kLargest;
       family.layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                                      expert_rows(), shared_expert_rows()});
     }},
    // DeepSeek-V2's experts, Llama's attention.
    {"deepseek_ocr2", "", "DeepseekOcr2TextAttention", "text model of DeepSeek-OCR-2",
     [](Architecture& family) {
       family.model_types = {"deepseek_ocr2_text"};
       family.defaults = R"({"n_routed_experts": 64, "n_shared_experts": 2,
         "moe_intermediate_size": 1407, "first_k_dense_replace": 0})";
       family.text_defaults = R"({"vocab_size": 102400, "hidden_size": 4096,
         "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
         "max_position_embeddings": 2048})";
       family.aliases = {{"num_experts", "n_routed_experts"}};
       family.switches = bias_switches();
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.fixed = {{"norm_topk_prob", "false"}, {"scoring_func", "\"softmax\""}};
       family.known_keys = {"topk_method"};
       family.expert_layers = ExpertLayers::kTyped;
       family.group_score = GroupScore::kLargest;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(), mlp_rows(), expert_rows(), shared_expert_rows()});
     }},
    {"deepseek_v3", "deepseek_v2", "DeepseekV3Attention", "DeepSeek-V3, V3.1, R1, Kimi-K2",
     [](Architecture& family) {
       family.model_types = {"deepseek_v3", "kimi_k2"};
       family.defaults.merge(R"({"topk_method": null, "n_routed_experts": 256,
         "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
         "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8, "norm_topk_prob": true,
         "routed_scaling_factor": 2.5, "rope_interleave": true})");
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob},
                          {"rope_interleave", &ModelConfig::rope_is_interleaved}};
       family.fixed = {{"moe_layer_freq", "1"},
                       {"topk_method", "\"noaux_tc\""},
                       {"scoring_func", "\"sigmoid\""}};
       family.resolve = nullptr;
       family.rope_is_interleaved = false;
       family.has_prediction_layers = true;
       family.draft = DraftLayer::kBehindLast;
       family.masks_first_draft = true;
       family.draft_scales = "{}_proj";
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                                      expert_rows(), correction_rows(), shared_expert_rows()});
     }},
    // DeepSeek-V3 without groups of experts. Published files say head_dim and q_head_dim for other
    // programs. Source: transformers 5.24, models/sarvam_mla.
    {"sarvam_mla", "deepseek_v3", "DeepseekV3Attention", "Sarvam 105B",
     [](Architecture& family) {
       family.defaults.merge(R"({"q_lora_rank": null, "n_routed_experts": null, "num_experts": 128,
         "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1})");
       add(family.aliases, {{"n_shared_experts", "num_shared_experts"}});
       add(family.known_keys, {"head_dim", "q_head_dim"});
       family.has_prediction_layers = false;
       family.draft = DraftLayer::kNone;
       family.draft_scales = "";
     }},
    // DeepSeek-V3 whose attention reads the index_topk tokens that an indexer selects.
    {"deepseek_v32", "deepseek_v3", "DeepseekV32Attention", "DeepSeek-V3.2",
     [](Architecture& family) {
       family.defaults.merge(R"({"rope_interleave": null, "index_topk": 2048, "index_head_dim": 128,
         "index_n_heads": 64})");
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.fixed = {{"mlp_bias", "false"},
                       {"topk_method", "\"noaux_tc\""},
                       {"indexer_rope_interleave", "false"}};
       family.known_keys = {"scoring_func"};
       family.rope_is_interleaved = true;
       family.indexer = Indexer::kHalves;
       family.draft = DraftLayer::kNone;
       family.masks_first_draft = false;
       family.draft_scales = "";
       family.expert_layers = ExpertLayers::kTyped;
       family.layer_tensors =
           joined({pre_norm_rows(), latent_attention_rows(), indexer_rows(), mlp_rows(),
                   expert_rows(), correction_rows(), shared_expert_rows()});
     }},
    // DeepSeek-V3.2's attention and experts. Some layers use the selection of the layer before;
    // the file holds an indexer for them, too.
    {"glm_moe_dsa", "deepseek_v32", "GlmMoeDsaAttention", "GLM-5",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
         "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5, "n_routed_experts": 256,
         "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
         "n_group": 1, "topk_group": 1, "num_experts_per_tok": 8, "norm_topk_prob": true,
         "routed_scaling_factor": 2.5, "index_topk": 2048, "index_head_dim": 128,
         "index_n_heads": 32})";
       family.fixed = {{"mlp_bias", "false"},
                       {"topk_method", "\"noaux_tc\""},
                       {"indexer_rope_interleave", "true"}};
       family.indexer = Indexer::kInterleaved;
       family.ignored_suffixes = indexer_suffixes();
     }},
    // DeepSeek-V3's attention and experts.
    {"glm4_moe_lite", "deepseek_v3", "Glm4MoeLiteAttention", "GLM-4.7-Flash",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192,
         "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5, "n_routed_experts": 64,
         "n_shared_experts": 1, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4, "norm_topk_prob": true,
         "routed_scaling_factor": 1.8, "rope_interleave": true})";
       family.fixed = {};
       family.known_keys = {"partial_rotary_factor"};
       family.draft_scales = "";
       family.expert_layers = ExpertLayers::kTyped;
     }},
    // DeepSeek-V3's attention with an MLP in every layer.
    {"youtu", "", "YoutuAttention", "Youtu-LLM",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_interleave": true,
         "tie_word_embeddings": true})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"rope_interleave", &ModelConfig::rope_is_interleaved}};
       family.known_keys = {"mlp_bias"};
       family.has_latent_attention = true;
       family.layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows()});
     }},
    // DeepSeek's latent attention, whose queries grow with the position, and softmax routing.
    {"mistral4", "deepseek_v2", "Mistral4Attention", "Mistral Small 4",
     [](Architecture& family) {
       family.defaults.merge(R"({"topk_method": null, "kv_lora_rank": 256, "q_lora_rank": 1024,
         "qk_nope_head_dim": 64, "n_routed_experts": 128, "n_shared_experts": 1,
         "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4,
         "norm_topk_prob": true, "rope_interleave": true, "rope_parameters": {"rope_type": "yarn",
         "rope_theta": 1e4, "factor": 128.0, "original_max_position_embeddings": 8192,
         "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
         "llama_4_scaling_beta": 0.1}})");
       family.has_query_beta = true;
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob},
                          {"rope_interleave", &ModelConfig::rope_is_interleaved}};
       family.fixed = {};
       family.resolve = nullptr;
       family.rope_is_interleaved = false;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                                      fused_expert_rows(Layout::kOutIn), shared_expert_rows()});
     }},
    // DeepSeek's latent attention with multipliers.
    {"minicpm3", "youtu", "MiniCPM3Attention", "MiniCPM3",
     [](Architecture& family) {
       family.defaults = R"({"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64,
         "qk_rope_head_dim": 32, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "scale_emb": 12,
         "scale_depth": 1.4, "dim_model_base": 256})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"mlp_bias", &ModelConfig::mlp_bias}};
       family.numbers = {{"scale_emb", &ModelConfig::embedding_multiplier},
                         {"scale_depth", &ModelConfig::residual_multiplier},
                         {"dim_model_base", &ModelConfig::head_input_multiplier}};
       family.known_keys = {};
       family.resolve = resolve_multipliers;
     }},
    // Llama's attention, DeepSeek-V3's experts in every layer.
    {"solar_open", "", "SolarOpenAttention", "Solar Open",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 1e6, "intermediate_size": 10240, "moe_intermediate_size": 1280,
         "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1,
         "topk_group": 1, "norm_topk_prob": true, "partial_rotary_factor": 1.0})";
       family.aliases = {{"num_experts", "n_routed_experts"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.known_keys = {"first_k_dense_replace"};
       family.expert_layers = ExpertLayers::kAll;
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), expert_rows(),
                                      correction_rows(), shared_expert_rows()});
     }},
    // Qwen 3's attention, DeepSeek-V3's experts.
    {"dots1", "solar_open", "Dots1Attention", "dots.llm1",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 32, "n_group": 1, "topk_group": 1,
         "moe_intermediate_size": 1408, "first_k_dense_replace": 0, "sliding_window": 4096,
         "max_window_layers": 62})";
       family.switches =
           attention_bias_switches({{"norm_topk_prob", &ModelConfig::norm_topk_prob}});
       family.known_keys = {"scoring_func"};
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.sliding_window = SlidingWindow::kFromMaxWindowLayers;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(), expert_rows(),
                   correction_rows(), shared_expert_rows()});
     }},
    // V narrower than K and scaled; layers with a window have sinks, a RoPE and KV heads of their
    // own.
    {"mimo_v2_flash", "solar_open", "MiMoV2FlashAttention", "MiMo-V2-Flash",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
         "rms_norm_eps": 1e-5, "attention_value_scale": 0.707, "sliding_window": 129,
         "partial_rotary_factor": 0.334, "rope_theta": 5000000.0, "rope_local_base_freq": 10000.0,
         "first_k_dense_replace": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
         "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1, "norm_topk_prob": true})";
       add(family.aliases,
           {{"rms_norm_eps", "layernorm_epsilon"}, {"rope_local_base_freq", "swa_rope_theta"}});
       family.numbers = {{"attention_value_scale", &ModelConfig::value_multiplier},
                         {"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.fixed = {{"add_swa_attention_sink_bias", "true"},
                       {"add_full_attention_sink_bias", "false"},
                       {"scoring_func", "\"sigmoid\""}};
       family.known_keys = {
           "sliding_window_size", "swa_num_attention_heads", "swa_head_dim",    "swa_v_head_dim",
           "topk_method",         "attention_chunk_size",    "n_shared_experts"};
       family.resolve = resolve_windows;
       family.has_value_dim = true;
       family.has_window_heads = true;
       family.expert_layers = ExpertLayers::kTyped;
       family.local_rope = LocalRope::kOwnTheta;
       family.sliding_window = SlidingWindow::kHybridPattern;
       family.layer_tensors = joined(
           {pre_norm_rows(),
            attention_rows(),
            {{kSinks, "self_attn.attention_sink_bias", {}, {when(&LayerConfig::has_window)}}},
            mlp_rows(),
            expert_rows(),
            correction_rows()});
       family.ignored_prefixes = {"model.mtp."};
     }},
};

}  // namespace

Lineage deepseek_lineage() {
  return kRows;
}

}  // namespace kvcal
