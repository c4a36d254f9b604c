#include "inspect/properties.h"

#include <algorithm>

#include "core/text.h"

namespace kvcal {
namespace {

std::string_view name_of(Activation activation) {
  constexpr std::string_view kWords[] = {
      "silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "xielu", "tanh", "situ"};
  static_assert(std::size(kWords) == static_cast<size_t>(Activation::kSitu) + 1);
  return kWords[static_cast<size_t>(activation)];
}

std::string_view name_of(RouterScore score) {
  constexpr std::string_view kWords[] = {"softmax", "sigmoid", "sparse mixer"};
  return kWords[static_cast<size_t>(score)];
}

/// Whether any layer has the role, also inside a fused tensor.
bool has_in_layers(const ModelConfig& config, const Weights& weights, Role role) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (weights.has(layer, role)) return true;
  return false;
}

bool has_any(const ModelConfig& config, const Weights& weights, std::initializer_list<Role> roles) {
  for (const Role role : roles)
    if (has_in_layers(config, weights, role)) return true;
  return false;
}

void add_sizes(Properties& properties, const ModelConfig& config) {
  const auto add = [&](const char* key, int64_t value) {
    properties.push_back({key, value, std::to_string(value)});
  };
  properties.push_back(
      {"family", config.architecture->name, std::string(config.architecture->name)});
  properties.push_back({"attention_class", config.architecture->attention_class,
                        std::string(config.architecture->attention_class)});
  const std::string module = config.attention_module(config.attention_layers().front());
  properties.push_back({"attention_modules", module, module});
  add("num_hidden_layers", config.num_hidden_layers);
  add("hidden_size", config.hidden_size);
  add("intermediate_size", config.intermediate_size);
  if (config.streams > 1) add("residual_streams", config.streams);
  if (config.attends_residuals) add("residual_block", config.residual_block);
  if (config.connections.exist()) add("sinkhorn_iterations", config.connections.iterations);
  add("vocab_size", config.vocab_size);
  add("max_position_embeddings", config.max_position_embeddings);
  add("num_attention_heads", config.num_attention_heads);
  add("num_key_value_heads", config.num_key_value_heads);
  add("head_dim", config.head_dim);
}

void add_norms(Properties& properties, const ModelConfig& config, const Weights& weights) {
  const bool has_bias = weights.has(Role::kFinalNormBias);
  const std::string kind = config.centers_norm ? "layer" : "rms";
  properties.push_back({"norm",
                        {{"kind", kind},
                         {"adds_one", config.architecture->norm_adds_one},
                         {"has_bias", has_bias},
                         {"eps", config.norm_eps}},
                        std::string(kind == "rms" ? "RMS" : "LayerNorm") +
                            (config.architecture->norm_adds_one ? ", times 1 + w" : "") +
                            (has_bias ? ", with bias" : "") + ", eps " +
                            short_float(config.norm_eps)});
  const bool is_hybrid = config.architecture->recurrence != Mixer::kNone;
  std::vector<std::string> places;
  for (const auto& [role, place] :
       {std::pair(Role::kInputNorm, is_hybrid ? "before mixers" : "before attention"),
        {Role::kAttentionOutputNorm, "behind attention"},
        {Role::kMlpNorm, "before MLP"},
        {Role::kMlpOutputNorm, "behind MLP"}})
    if (has_in_layers(config, weights, role)) places.emplace_back(place);
  properties.push_back({"norm_places", places, join(places, ", ")});
  std::string qk_norm;
  if (has_in_layers(config, weights, Role::kKeyNorm)) {
    const QkNorm how = config.architecture->qk_norm;
    qk_norm = how == QkNorm::kPerHead ? "per head"
              : how == QkNorm::kWhole ? "over all heads"
                                      : "per head, each with its own weight";
  }
  properties.push_back({"qk_norm", qk_norm.empty() ? Json(nullptr) : Json(qk_norm), qk_norm});
}

void add_tensors(Properties& properties, const ModelConfig& config, const Weights& weights) {
  std::vector<std::string> biases, fused;
  const auto has = [&](std::initializer_list<Role> roles) {
    return has_any(config, weights, roles);
  };
  if (has({Role::kQueryBias, Role::kQueryDownBias, Role::kLatentBias}))
    biases.emplace_back("q/k/v");
  if (has({Role::kOutputBias})) biases.emplace_back("attention output");
  if (has({Role::kKeyNormBias})) biases.emplace_back("q/k norm");
  if (has({Role::kUpBias, Role::kDownBias})) biases.emplace_back("MLP");
  if (has({Role::kExpertUpBias, Role::kExpertDownBias})) biases.emplace_back("experts");
  if (has({Role::kRouterBias})) biases.emplace_back("router");
  if (has({Role::kMixerInBias, Role::kMixerOutBias})) biases.emplace_back("mixers");
  if (has({Role::kMixerConvBias})) biases.emplace_back("mixers' convolutions");
  if (weights.has(Role::kLmHeadBias)) biases.emplace_back("lm_head");
  if (has({Role::kQueryKeyValue}))
    fused.emplace_back(config.architecture->fused_qkv == FusedQkv::kByGroup ? "q/k/v by group"
                                                                            : "q/k/v");
  if (has({Role::kGateUp})) fused.emplace_back("gate/up");
  if (has({Role::kSharedGateUp})) fused.emplace_back("shared experts' gate/up");
  if (has({Role::kExpertGateUp})) fused.emplace_back("experts' gate/up");
  properties.push_back({"biases", biases, join(biases, ", ")});
  properties.push_back({"fused", fused, join(fused, ", ")});
  if (const std::string& problem = weights.head_problem(); !problem.empty()) {
    properties.push_back({"lm_head", nullptr, "not read: " + problem});
    return;
  }
  const bool is_tied = !weights.has(Role::kLmHead);
  properties.push_back({"tied_embeddings", is_tied, is_tied ? "yes" : "no"});
}

void add_feed_forward(Properties& properties, const ModelConfig& config, const Weights& weights) {
  const bool is_gated =
      has_any(config, weights, {Role::kGate, Role::kExpertGate, Role::kSharedGate});
  std::string text = std::string(name_of(config.activation)) + (is_gated ? ", gated" : "");
  if (config.activation_limit > 0) text += ", clamped at " + short_float(config.activation_limit);
  const auto limits = [](const LayerConfig& layer) {
    return layer.expert_limit > 0.0f || layer.mlp_limit > 0.0f;
  };
  const auto limited = std::ranges::count_if(config.layers, limits);
  if (limited > 0) text += ", clamped behind it in " + counted(limited, "layer");
  properties.push_back(
      {"activation",
       {{"name", name_of(config.activation)},
        {"gated", is_gated},
        {"limit", config.activation_limit > 0 ? Json(config.activation_limit) : Json()}},
       text});
  properties.push_back({"residual", config.parallel_residual ? "parallel" : "sequential",
                        config.parallel_residual ? "attention and MLP in parallel" : ""});
}

/// Shown only where a branch has one.
void add_branch_multipliers(Properties& properties, const ModelConfig& config) {
  const std::pair<const char*, float> all[] = {
      {"attention_input", config.attention_input_multiplier},
      {"key", config.key_multiplier},
      {"attention_output", config.attention_output_multiplier},
      {"mixer_input", config.mixer_input_multiplier},
      {"mixer_output", config.mixer_output_multiplier},
      {"gate", config.gate_multiplier},
      {"mlp_output", config.mlp_output_multiplier}};
  Json json = Json::object();
  std::vector<std::string> texts;
  const auto show = [&](const std::string& name, float value) {
    json[name] = value;
    texts.push_back(key_words(name) + " " + short_float(value));
  };
  for (const auto& [name, value] : all)
    if (value != 1.0f) show(name, value);
  const MixerMultipliers& mixer = config.recurrent.in_multipliers;
  const char* const parts[] = {"mixer_gate", "mixer_x", "mixer_b", "mixer_c", "mixer_steps"};
  for (size_t i = 0; i < mixer.size(); ++i)
    if (mixer[i] != 1.0f) show(parts[i], mixer[i]);
  if (!json.empty()) properties.push_back({"branch_multipliers", json, join(texts, ", ")});
}

void add_numbers(Properties& properties, const ModelConfig& config) {
  const auto add = [&](const char* key, float value, float neutral) {
    properties.push_back(
        {key, value == neutral ? Json() : Json(value), value == neutral ? "" : short_float(value)});
  };
  add("softmax_scale", config.softmax_scale, 0.0f);
  add("attention_softcap", config.attention_softcap, 0.0f);
  add("logits_softcap", config.logits_softcap, 0.0f);
  add("embedding_multiplier", config.embedding_multiplier, 1.0f);
  add("residual_multiplier", config.residual_multiplier, 1.0f);
  add("logits_multiplier", config.logits_multiplier, 1.0f);
  add_branch_multipliers(properties, config);
}

void add_experts(Properties& properties, const ModelConfig& config, const Weights& weights) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    if (config.layers[static_cast<size_t>(i)].is_moe) layers.push_back(i);
  if (layers.empty()) {
    properties.push_back({"experts", nullptr, ""});
    return;
  }
  const MoeConfig& moe = config.moe;
  const bool has_correction = has_in_layers(config, weights, Role::kRouterCorrection);
  const Json json = {{"layers", layers},
                     {"num_experts", moe.num_experts},
                     {"experts_per_token", moe.experts_per_token},
                     {"intermediate_size", moe.intermediate_size},
                     {"router_score", name_of(moe.score)},
                     {"router_correction", has_correction},
                     {"normalized", config.norm_topk_prob},
                     {"routed_scaling_factor", config.routed_scaling_factor},
                     {"num_groups", moe.num_groups},
                     {"groups_per_token", moe.groups_per_token},
                     {"shared_intermediate_size", moe.shared_intermediate_size}};
  std::string text =
      std::to_string(moe.experts_per_token) + " of " + std::to_string(moe.num_experts) +
      " a token, " + std::to_string(moe.intermediate_size) + " wide, routed by " +
      std::string(name_of(moe.score)) + (has_correction ? " with a correction" : "") +
      (config.norm_topk_prob ? ", normalized" : "");
  if (config.routed_scaling_factor != 1.0f)
    text += ", times " + short_float(config.routed_scaling_factor);
  if (moe.num_groups > 1)
    text += ", from " + std::to_string(moe.groups_per_token) + " of " +
            counted(moe.num_groups, "group");
  if (moe.shared_intermediate_size > 0)
    text += ", shared experts " + std::to_string(moe.shared_intermediate_size) + " wide";
  properties.push_back({"experts", json, text + ", " + layers_text(layers, config)});
}

Json latent_json(const LatentConfig& latent) {
  return {{"latent_rank", latent.latent_rank},
          {"query_rank", latent.query_rank},
          {"rope_dim", latent.rope_dim},
          {"nope_dim", latent.nope_dim},
          {"value_dim", latent.value_dim}};
}

std::string latent_text(const LatentConfig& latent) {
  return "latent of " + std::to_string(latent.latent_rank) +
         (latent.rope_dim > 0 ? " and a rotated key of " + std::to_string(latent.rope_dim) : "");
}

void add_latent_attention(Properties& properties, const ModelConfig& config) {
  Json json = latent_json(config.latent);
  std::string text = latent_text(config.latent) + " a token, shared by all heads";
  // The layers with sizes of their own are those with a window, which are alike.
  const auto windows = config.layers_where(&LayerConfig::has_window);
  if (config.architecture->has_latent_by_layer && !windows.empty()) {
    const LatentConfig& own = config.layer(windows.front()).latent;
    json["with_window"] = latent_json(own);
    text += "; in layers with a window a " + latent_text(own);
  }
  properties.push_back({"latent_attention", json, text});
}

void add_attention_kind(Properties& properties, const ModelConfig& config, const Weights& weights) {
  if (config.architecture->has_latent_attention) {
    add_latent_attention(properties, config);
  } else {
    properties.push_back({"latent_attention", nullptr, ""});
  }
  if (config.most_tokens > 0)
    properties.push_back({"most_tokens", config.most_tokens,
                          "sequences of up to " + std::to_string(config.most_tokens) +
                              ", whose keys an indexer selects whole"});
  const bool has_sinks = has_in_layers(config, weights, Role::kSinks);
  properties.push_back({"sinks", has_sinks, has_sinks ? "one a head" : ""});
  if (config.relative_rank > 0)
    properties.push_back(
        {"relative_logits",
         {{"rank", config.relative_rank}},
         "logits by distance, of " + counted(config.relative_rank, "state") + " a head"});
  if (config.short_kernel > 0)
    properties.push_back({"short_convolutions", config.short_kernel,
                          "of K, V and the outputs of attention and MLP, over " +
                              counted(config.short_kernel, "token")});
  const bool has_gate = config.architecture->has_query_gate;
  properties.push_back(
      {"query_gate", has_gate,
       has_gate ? "what attention gives is weighed by a sigmoid of its input" : ""});
}

void add_dtype(Properties& properties, const ModelConfig& config) {
  const bool is_fp8 = config.weight_block_rows > 0;
  const std::string dtype = config.dtype.empty() ? "not named" : config.dtype;
  Json block;
  std::string text = dtype;
  if (is_fp8) {
    block = {config.weight_block_rows, config.weight_block_columns};
    text += ", weights FP8 (E4M3) scaled in blocks of " + std::to_string(config.weight_block_rows) +
            " x " + std::to_string(config.weight_block_columns);
  }
  properties.push_back({"dtype", config.dtype.empty() ? Json() : Json(config.dtype), text});
  properties.push_back({"weight_block_size", block, ""});
}

}  // namespace

Property quantization_property(const CheckpointQuantization& quantization) {
  int64_t blocks = 0, rows = 0, inputs[4] = {};
  for (const auto& [module, linear] : quantization.linears) {
    if (element_count(linear.weight_scale.shape) > 1) ++(linear.block_rows == 1 ? rows : blocks);
    ++inputs[static_cast<size_t>(linear.input)];
  }
  const auto count = static_cast<int64_t>(quantization.linears.size());
  const auto of = [&](InputQuantization input) { return inputs[static_cast<size_t>(input)]; };
  const Json json = {
      {"modules", count},
      {"weight_scales", {{"tensor", count - rows - blocks}, {"channel", rows}, {"block", blocks}}},
      {"inputs",
       {{"none", of(InputQuantization::kNone)},
        {"static", of(InputQuantization::kStatic)},
        {"dynamic_token", of(InputQuantization::kDynamicToken)},
        {"dynamic_group", of(InputQuantization::kDynamicGroup)}}}};
  std::vector<std::string> scales, kinds;
  const auto words = [](const Json& counts, std::vector<std::string>& into) {
    for (const auto& [word, number] : counts.items())
      if (number > 0) into.push_back(key_words(word) + " " + number.dump());
  };
  words(json.at("weight_scales"), scales);
  words(json.at("inputs"), kinds);
  return {"quantization", json,
          "FP8 weights of " + counted(count, "module") + ", scales: " + join(scales, ", ") +
              "; inputs: " + join(kinds, ", ")};
}

Properties model_properties(const ModelConfig& config, const Weights& weights) {
  Properties properties;
  add_sizes(properties, config);
  add_mixers(properties, config);
  add_norms(properties, config, weights);
  add_tensors(properties, config, weights);
  add_attention_kind(properties, config, weights);
  add_positions(properties, config);
  add_windows(properties, config);
  add_numbers(properties, config);
  add_feed_forward(properties, config, weights);
  add_experts(properties, config, weights);
  add_dtype(properties, config);
  return properties;
}

std::vector<std::pair<std::string, std::string>> shown(const Properties& properties) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Property& property : properties)
    if (!property.text.empty()) lines.emplace_back(key_words(property.key), property.text);
  return lines;
}

CacheSize cache_size(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const int64_t state =
      (mixer.kernel - 1) * mixer.channels + mixer.heads * mixer.head_dim * mixer.state_dim;
  const auto recurrent = std::ssize(config.layers_where(&LayerConfig::has_recurrence));
  CacheSize size{.state_bytes_per_sequence = 4 * recurrent * state};
  for (const int64_t layer : config.cached_layers()) {
    const LayerCache& cache = config.cache(layer);
    if (config.short_kernel > 0)
      size.state_bytes_per_sequence +=
          4 * (config.short_kernel - 1) * (cache.width() + 2 * config.hidden_size);
    auto shape = std::ranges::find(size.shapes, cache, &CacheShape::cache);
    if (shape == size.shapes.end()) shape = size.shapes.insert(shape, {.cache = cache});
    shape->layers.push_back(layer);
    ++size.layers;
    size.values_per_token += cache.width();
  }
  return size;
}

}  // namespace kvcal
