#include <cmath>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows gpt2_layer_rows() {
  return {
      {kInputNorm, "ln_1.weight"},
      {kInputNormBias, "ln_1.bias"},
      {kQueryKeyValue, "attn.c_attn.weight", {Dim::kHidden, Dim::kQkvWidth}, {}, Layout::kInOut},
      {kQueryKeyValueBias, "attn.c_attn.bias"},
      {kOutput, "attn.c_proj.weight", {Dim::kQueryWidth, Dim::kHidden}, {}, Layout::kInOut},
      {kOutputBias, "attn.c_proj.bias"},
      {kMlpNorm, "ln_2.weight"},
      {kMlpNormBias, "ln_2.bias"},
      {kUp, "mlp.c_fc.weight", {Dim::kHidden, Dim::kIntermediate}, {}, Layout::kInOut},
      {kUpBias, "mlp.c_fc.bias"},
      {kDown, "mlp.c_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {}, Layout::kInOut},
      {kDownBias, "mlp.c_proj.bias"},
  };
}

TensorRows gpt_neox_layer_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return joined({
      pre_norm_rows(),
      pre_norm_bias_rows(),
      {{kQueryKeyValue, "attention.query_key_value.weight"},
       {kQueryKeyValueBias, "attention.query_key_value.bias", {}, {biased}},
       {kOutput, "attention.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {kOutputBias, "attention.dense.bias", {}, {biased}}},
      plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                     "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias"),
  });
}

/// What scales the scores besides the usual factor.
void resolve_scores(const Json& json, ModelConfig& config) {
  if (!optional_bool(json, "scale_attn_weights").value_or(true)) config.softmax_scale = 1.0f;
  if (!optional_bool(json, "scale_attn_by_inverse_layer_idx").value_or(false)) return;
  float divisor = 1.0f;
  for (LayerConfig& layer : config.layers) layer.softmax_factor = 1.0f / divisor++;
}

/// The rows of Q, K and V lie in four blocks.
void resolve_blocks(const Json& json, ModelConfig& config) {
  share_parallel_norm(json, config);
  config.mlp_bias = true;
  if (config.num_attention_heads % 4 != 0)
    fail("key 'n_head' is ", config.num_attention_heads, ", expected a multiple of 4");
}

TensorRows exaone_layer_rows() {
  return {
      {kInputNorm, "ln_1.weight"},
      {kQuery, "attn.attention.q_proj.weight"},
      {kKey, "attn.attention.k_proj.weight"},
      {kValue, "attn.attention.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {kOutput, "attn.attention.out_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kMlpNorm, "ln_2.weight"},
      {kGate, "mlp.c_fc_0.weight"},
      {kUp, "mlp.c_fc_1.weight"},
      {kDown, "mlp.c_proj.weight"},
  };
}

/// Which norms a model has; OPT-350M's follow the residual sums. Source: transformers
/// `OPTDecoderLayer` and `OPTDecoder`.
void resolve_opt(const Json& config, ModelConfig& resolved) {
  resolved.norms_stream = !optional_bool(config, "do_layer_norm_before").value_or(true);
  resolved.has_final_norm =
      !resolved.norms_stream && !optional_bool(config, "_remove_final_layer_norm").value_or(false);
  if (resolved.norms_stream && !resolved.has_norm_weights)
    fail("key 'do_layer_norm_before' is false and layer_norm_elementwise_affine is false, which ",
         "is not supported together");
  if (const auto width = optional_int(config, "word_embed_proj_dim")) {
    if (*width < 1 || *width > kMaxWidth)
      fail("key 'word_embed_proj_dim' is ", *width, ", expected 1 to ", kMaxWidth);
    resolved.embedding_size = *width;
  }
  resolved.projects_embedding = resolved.embedding_size != resolved.hidden_size;
}

void resolve_biases(const Json& config, ModelConfig& resolved) {
  resolved.attention_bias = resolved.output_bias = resolved.mlp_bias = true;
  if (optional_bool(config, "scale_embedding").value_or(true))
    resolved.embedding_multiplier = std::sqrt(static_cast<float>(resolved.hidden_size));
}

/// Rows of the experts. Names of split experts are llm-compressor's; gate has the even columns, up
/// the odd ones.
TensorRows expert_rows_of_gpt_oss() {
  const auto stacked = [](Role role, std::string_view name, Layout layout, std::vector<Dim> shape,
                          std::vector<SplitRow> split) {
    return TensorRow{role, name, std::move(shape), {}, layout, Dim::kExperts, std::move(split)};
  };
  return {
      {kRouter, "mlp.router.weight"},
      {kRouterBias, "mlp.router.bias"},
      stacked(kExpertGateUp, "mlp.experts.gate_up_proj", Layout::kInOutInterleaved,
              {Dim::kHidden, Dim::kExpertGateUpWidth},
              {{kExpertGate, "mlp.experts.{}.gate_proj.weight"},
               {kExpertUp, "mlp.experts.{}.up_proj.weight"}}),
      stacked(kExpertGateUpBias, "mlp.experts.gate_up_proj_bias", Layout::kOutInterleaved, {},
              {{kExpertGateBias, "mlp.experts.{}.gate_proj.bias"},
               {kExpertUpBias, "mlp.experts.{}.up_proj.bias"}}),
      stacked(kExpertDown, "mlp.experts.down_proj", Layout::kInOut,
              {Dim::kExpertIntermediate, Dim::kHidden},
              {{kExpertDown, "mlp.experts.{}.down_proj.weight"}}),
      stacked(kExpertDownBias, "mlp.experts.down_proj_bias", Layout::kOutIn, {},
              {{kExpertDownBias, "mlp.experts.{}.down_proj.bias"}}),
  };
}

/// Norms before attention and MLP, or behind them, where they change the residual stream.
TensorRows opt_norm_rows() {
  return joined(
      {with(unless(&ModelConfig::norms_stream), {{kInputNorm, "self_attn_layer_norm.weight"},
                                                 {kInputNormBias, "self_attn_layer_norm.bias"},
                                                 {kMlpNorm, "final_layer_norm.weight"},
                                                 {kMlpNormBias, "final_layer_norm.bias"}}),
       with(when(&ModelConfig::norms_stream), {{kMlpNorm, "self_attn_layer_norm.weight"},
                                               {kMlpNormBias, "self_attn_layer_norm.bias"},
                                               {kStreamNorm, "final_layer_norm.weight"},
                                               {kStreamNormBias, "final_layer_norm.bias"}})});
}

constexpr FamilyRow kRows[] = {
    {"gpt2", "", "GPT2Attention", "GPT-2, DistilGPT2",
     [](Architecture& family) {
       family.model_types = {"gpt2", "gpt-sw3"};
       family.defaults = R"({"n_positions": 1024, "activation_function": "gelu_new",
         "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})";
       family.aliases = {{"hidden_size", "n_embd"},
                         {"num_hidden_layers", "n_layer"},
                         {"num_attention_heads", "n_head"},
                         {"intermediate_size", "n_inner"},
                         {"max_position_embeddings", "n_positions"},
                         {"hidden_act", "activation_function"},
                         {"rms_norm_eps", "layer_norm_epsilon"}};
       family.fixed = {{"add_cross_attention", "false"}};
       family.known_keys = {"scale_attn_weights", "scale_attn_by_inverse_layer_idx"};
       family.resolve = resolve_scores;
       family.centers_norm = true;
       family.intermediate_multiple = 4;
       family.positions = Positions::kLearned;
       family.prefixes = {{""}, {"transformer."}};
       family.layers_name = "h.";
       family.attention_module = "attn";
       family.model_tensors =
           joined({model_rows("wte.weight", "ln_f.weight"),
                   {{kPositionEmbedding, "wpe.weight"}, {kFinalNormBias, "ln_f.bias"}}});
       family.layer_tensors = gpt2_layer_rows();
       family.ignored_suffixes = {".attn.bias", ".attn.masked_bias"};
     }},
    // GPT-2 with one K and V for all heads.
    {"gpt_bigcode", "gpt2", "GPTBigCodeAttention", "SantaCoder, StarCoder",
     [](Architecture& family) {
       family.defaults = R"({"n_positions": 1024, "activation_function": "gelu_pytorch_tanh",
         "layer_norm_epsilon": 1e-5, "multi_query": true, "tie_word_embeddings": true})";
       family.switches = {{"multi_query", &ModelConfig::multi_query}};
       family.known_keys = {"scale_attn_weights"};
       family.resolve = [](const Json& json, ModelConfig& config) {
         if (!optional_bool(json, "scale_attn_weights").value_or(true)) config.softmax_scale = 1.0f;
         config.mlp_bias = true;
       };
       family.fused_qkv = FusedQkv::kByGroup;
       family.prefixes = {{"transformer."}};
       family.layer_tensors =
           joined({{{kInputNorm, "ln_1.weight"},
                    {kInputNormBias, "ln_1.bias"},
                    {kQueryKeyValue, "attn.c_attn.weight"},
                    {kQueryKeyValueBias, "attn.c_attn.bias"},
                    {kOutput, "attn.c_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
                    {kOutputBias, "attn.c_proj.bias"},
                    {kMlpNorm, "ln_2.weight"},
                    {kMlpNormBias, "ln_2.bias"}},
                   plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
                                  "mlp.c_proj.bias")});
     }},
    // GPT-2 with windows in every other layer and scores that are not scaled.
    {"gpt_neo", "gpt2", "GPTNeoSelfAttention", "GPT-Neo",
     [](Architecture& family) {
       family.defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu_new",
         "layer_norm_epsilon": 1e-5, "window_size": 256, "attention_types": [[["global", "local"],
         12]], "tie_word_embeddings": true})";
       family.aliases = {{"num_hidden_layers", "num_layers"},
                         {"num_attention_heads", "num_heads"},
                         {"sliding_window", "window_size"},
                         {"hidden_act", "activation_function"},
                         {"rms_norm_eps", "layer_norm_epsilon"}};
       family.fixed = {};
       family.resolve = [](const Json&, ModelConfig& config) {
         config.output_bias = config.mlp_bias = true;
         config.softmax_scale = 1.0f;
       };
       family.sliding_window = SlidingWindow::kAttentionTypes;
       family.prefixes = {{"transformer."}};
       family.attention_module = "attn.attention";
       family.layer_tensors =
           joined({{{kInputNorm, "ln_1.weight"},
                    {kInputNormBias, "ln_1.bias"},
                    {kMlpNorm, "ln_2.weight"},
                    {kMlpNormBias, "ln_2.bias"}},
                   attention_rows_named({.query = "attn.attention.q_proj.weight",
                                         .key = "attn.attention.k_proj.weight",
                                         .value = "attn.attention.v_proj.weight",
                                         .output = "attn.attention.out_proj.weight",
                                         .output_bias = "attn.attention.out_proj.bias"}),
                   plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
                                  "mlp.c_proj.bias")});
       family.ignored_suffixes = {".attn.attention.bias", ".attn.attention.masked_bias"};
     }},
    {"gpt_neox", "", "GPTNeoXAttention", "GPT-NeoX, Pythia, Dolly",
     [](Architecture& family) {
       family.defaults = R"({"rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5,
         "use_parallel_residual": true, "attention_bias": true, "hidden_act": "gelu",
         "max_position_embeddings": 2048})";
       family.aliases = {{"rms_norm_eps", "layer_norm_eps"},
                         {"partial_rotary_factor", "rotary_pct"},
                         {"rope_theta", "rotary_emb_base"}};
       family.switches = {{"use_parallel_residual", &ModelConfig::parallel_residual},
                          {"attention_bias", &ModelConfig::attention_bias}};
       family.resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; };
       family.centers_norm = true;
       family.fused_qkv = FusedQkv::kByGroup;
       family.prefixes = {{"gpt_neox."}};
       family.attention_module = "attention";
       family.model_tensors =
           joined({model_rows("embed_in.weight", "final_layer_norm.weight", "embed_out.weight"),
                   {{kFinalNormBias, "final_layer_norm.bias"}}});
       family.layer_tensors = gpt_neox_layer_rows();
       family.ignored_suffixes = {".attention.bias", ".attention.masked_bias"};
     }},
    {"gptj", "gpt2", "GPTJAttention", "GPT-J",
     [](Architecture& family) {
       family.defaults = R"({"n_positions": 2048, "rotary_dim": 64,
         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})";
       family.fixed = {
           {"rope_theta", "10000.0"}, {"rope_scaling", "null"}, {"rope_parameters", "null"}};
       family.known_keys = {"rotary", "scale_attn_weights"};
       family.resolve = [](const Json& json, ModelConfig& config) {
         share_parallel_norm(json, config);
         config.mlp_bias = true;
       };
       family.rope_is_interleaved = true;
       family.counts_rotary_dim = true;
       family.positions = Positions::kRope;
       family.prefixes = {{"transformer."}};
       family.model_tensors =
           joined({model_rows("wte.weight", "ln_f.weight"),
                   {{kFinalNormBias, "ln_f.bias"}, {kLmHeadBias, "lm_head.bias"}}});
       family.layer_tensors = joined({{{kInputNorm, "ln_1.weight"}, {kInputNormBias, "ln_1.bias"}},
                                      attention_rows_named({.query = "attn.q_proj.weight",
                                                            .key = "attn.k_proj.weight",
                                                            .value = "attn.v_proj.weight",
                                                            .output = "attn.out_proj.weight"}),
                                      plain_mlp_rows("mlp.fc_in.weight", "mlp.fc_in.bias",
                                                     "mlp.fc_out.weight", "mlp.fc_out.bias")});
     }},
    // GPT-J with fused Q, V and K.
    {"codegen", "gptj", "CodeGenAttention", "CodeGen",
     [](Architecture& family) {
       family.known_keys = {"scale_attn_weights"};
       family.resolve = resolve_blocks;
       family.fused_qkv = FusedQkv::kFourBlocks;
       family.layer_tensors =
           joined({{{kInputNorm, "ln_1.weight"},
                    {kInputNormBias, "ln_1.bias"},
                    {kQueryKeyValue, "attn.qkv_proj.weight"},
                    {kOutput, "attn.out_proj.weight", {Dim::kHidden, Dim::kQueryWidth}}},
                   plain_mlp_rows("mlp.fc_in.weight", "mlp.fc_in.bias", "mlp.fc_out.weight",
                                  "mlp.fc_out.bias")});
       family.ignored_suffixes = {".attn.bias", ".attn.causal_mask", ".attn.masked_bias"};
     }},
    // Llama in GPT-2's names. Source: modeling_exaone.py of the published EXAONE 3 checkpoints,
    // which name all that they need; defaults are transformers 5.24's.
    {"exaone", "", "ExaoneAttention", "EXAONE 3, EXAONE 3.5, EXAONE Deep",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "layer_norm_epsilon": 1e-5,
         "rope_theta": 500000, "max_position_embeddings": 4096})";
       family.aliases = {{"num_hidden_layers", "num_layers"},
                         {"hidden_act", "activation_function"},
                         {"rms_norm_eps", "layer_norm_epsilon"}};
       family.prefixes = {{"transformer."}};
       family.layers_name = "h.";
       family.attention_module = "attn.attention";
       family.model_tensors = model_rows("wte.weight", "ln_f.weight");
       family.layer_tensors = exaone_layer_rows();
       family.ignored_suffixes = {".rotary.inv_freq"};
     }},
    {"opt", "", "OPTAttention", "OPT, Galactica",
     [](Architecture& family) {
       family.defaults = R"({"max_position_embeddings": 2048, "activation_function": "relu",
         "rms_norm_eps": 1e-5, "enable_bias": true, "tie_word_embeddings": true})";
       family.aliases = {{"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"}};
       family.switches = {{"enable_bias", &ModelConfig::attention_bias},
                          {"enable_bias", &ModelConfig::output_bias},
                          {"enable_bias", &ModelConfig::mlp_bias}};
       family.switches.push_back({"layer_norm_elementwise_affine", &ModelConfig::has_norm_weights});
       family.known_keys = {"word_embed_proj_dim", "do_layer_norm_before",
                            "_remove_final_layer_norm"};
       family.resolve = resolve_opt;
       family.plain_norms = {kInputNorm, kMlpNorm};
       family.centers_norm = true;
       family.position_offset = 2;
       family.positions = Positions::kLearned;
       family.prefixes = {{"model.decoder."}, {"decoder."}};
       const Condition normed = when(&ModelConfig::has_final_norm);
       const Condition affine = when(&ModelConfig::has_norm_weights);
       const Condition projected = when(&ModelConfig::projects_embedding);
       family.model_tensors = {
           {kEmbedding, "embed_tokens.weight"},
           {kEmbeddingOut, "project_out.weight", {}, {projected}},
           {kEmbeddingIn, "project_in.weight", {}, {projected}},
           {kFinalNorm, "final_layer_norm.weight", {}, {normed, affine}},
           {kFinalNormBias, "final_layer_norm.bias", {}, {normed, affine}},
           {kLmHead, "lm_head.weight", {}, {unless(&ModelConfig::tie_word_embeddings)}},
           {kPositionEmbedding, "embed_positions.weight"}};
       family.layer_tensors =
           joined({with(affine, opt_norm_rows()), attention_rows_named(kOutProjAttention),
                   plain_mlp_rows("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")});
     }},
    {"biogpt", "opt", "BioGptAttention", "BioGPT",
     [](Architecture& family) {
       // transformers' norms have torch's epsilon, whatever layer_norm_eps says.
       family.defaults = R"({"max_position_embeddings": 1024, "hidden_act": "gelu",
         "rms_norm_eps": 1e-5, "scale_embedding": true, "tie_word_embeddings": true})";
       family.aliases = {};
       family.switches = {};
       family.fixed = {};
       family.known_keys = {"layer_norm_eps"};
       family.resolve = resolve_biases;
       family.plain_norms = {};
       family.prefixes = {{"biogpt."}};
       family.model_tensors = joined(
           {model_rows("embed_tokens.weight", "layer_norm.weight", "output_projection.weight"),
            {{kPositionEmbedding, "embed_positions.weight"}, {kFinalNormBias, "layer_norm.bias"}}});
     }},
    {"xglm", "biogpt", "XGLMAttention", "XGLM",
     [](Architecture& family) {
       family.defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu",
         "rms_norm_eps": 1e-5, "scale_embedding": true, "tie_word_embeddings": true})";
       family.aliases = {{"hidden_size", "d_model"},
                         {"num_hidden_layers", "num_layers"},
                         {"num_attention_heads", "attention_heads"},
                         {"intermediate_size", "ffn_dim"},
                         {"hidden_act", "activation_function"}};
       // From 2 on, transformers gives the position that is two less no wave.
       family.fixed = {{"add_cross_attention", "false"}, {"pad_token_id", "1"}};
       family.resolve = [](const Json& json, ModelConfig& config) { resolve_biases(json, config); };
       family.positions = Positions::kSinusoidal;
       family.prefixes = {{"model."}};
       family.model_tensors = joined({model_rows("embed_tokens.weight", "layer_norm.weight"),
                                      {{kFinalNormBias, "layer_norm.bias"}}});
       family.ignored_suffixes = {"embed_positions.weights"};
     }},
    {"gpt_oss", "", "GptOssAttention", "gpt-oss in 16 bits",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128,
         "sliding_window_pattern": 2, "rms_norm_eps": 1e-5, "rope_theta": 150000,
         "num_local_experts": 128, "num_experts_per_tok": 4, "attention_bias": true,
         "swiglu_limit": 7.0, "rope_parameters": {"rope_type": "yarn", "factor": 32.0,
         "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
         "original_max_position_embeddings": 4096}})";
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.switches = attention_bias_switches();
       family.numbers = {{"swiglu_limit", &ModelConfig::activation_limit}};
       // hidden_act is "silu"; the experts use x · sigmoid(1.702 x).
       family.fixed = {{"swiglu_alpha", "1.702"}};
       family.known_keys = {"experts_per_token", "initial_context_length"};
       family.resolve = [](const Json& json, ModelConfig& config) {
         const int64_t count = config.moe.experts_per_token;
         const int64_t second = optional_int(json, "experts_per_token").value_or(count);
         if (second != count)
           fail("key 'experts_per_token' is ", second, ", expected num_experts_per_tok ", count);
         config.activation = Activation::kQuickGelu;
         config.norm_topk_prob = true;
       };
       family.expert_layers = ExpertLayers::kAll;
       family.sliding_window = SlidingWindow::kPattern;
       family.layer_tensors = joined({pre_norm_rows(),
                                      attention_rows(),
                                      {{kSinks, "self_attn.sinks"}},
                                      expert_rows_of_gpt_oss()});
     }},
};

}  // namespace

Lineage gpt_lineage() {
  return kRows;
}

}  // namespace kvcal
