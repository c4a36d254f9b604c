#include "family/layer_plan.h"

#include <algorithm>
#include <array>

namespace kvcal {
namespace {

std::vector<int64_t> integer_list(const ConfigReader& reader, std::string_view key) {
  std::vector<int64_t> values;
  const Json* list = reader.find(key);
  if (!list) return values;
  if (!list->is_array()) fail_kind(key, "a list of integers", *list);
  for (const Json& value : *list) {
    if (!value.is_number_integer())
      fail("key '", key, "' holds ", value.dump(), ", expected integers");
    values.push_back(value.get<int64_t>());
  }
  return values;
}

/// The layers for whose numbers holds(i) is true.
std::vector<bool> layers_where(int64_t num_layers, const auto& holds) {
  std::vector<bool> layers;
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back(holds(i));
  return layers;
}

/// A list with one of two words for each layer; passed: words of layers that this is not said of.
struct LayerNames {
  std::string_view key, chosen, other;
  std::array<std::string_view, 2> passed = {};
};
constexpr LayerNames kWindowWords{"layer_types", "sliding_attention", "full_attention"};
constexpr LayerNames kWindowOrMixerWords{
    "layer_types", "sliding_attention", "full_attention", {"linear_attention", "conv"}};
constexpr LayerNames kWindowOrIndexerWords{
    "layer_types", "sliding_attention", "full_attention", {"indexed_attention"}};
constexpr LayerNames kExpertWords{"mlp_layer_types", "sparse", "dense"};

/// A list with 0 or 1 for each layer; the layers with 1.
std::vector<bool> layers_by_mark(const ConfigReader& reader, std::string_view key,
                                 int64_t num_layers) {
  std::vector<bool> chosen;
  for (const int64_t mark : integer_list(reader, key)) {
    if (mark != 0 && mark != 1) fail("key '", key, "' holds ", mark, ", expected 0 or 1");
    chosen.push_back(mark == 1);
  }
  if (std::ssize(chosen) != num_layers)
    fail("key '", key, "' has ", counted(chosen.size(), "value"), ", expected ", num_layers,
         ", one a layer");
  return chosen;
}

/// The layers that have the chosen word.
std::vector<bool> layers_by_word(const LayerNames& words, const Json& types, int64_t num_layers) {
  check_one_a_layer(words.key, types, num_layers);
  std::vector<bool> chosen;
  for (const Json& type : types) {
    const std::string word = type.is_string() ? type.get<std::string>() : type.dump();
    const bool is_passed =
        !word.empty() && std::ranges::find(words.passed, word) != words.passed.end();
    if (word != words.chosen && word != words.other && !is_passed)
      fail("key '", words.key, "' holds '", word, "' for layer ", chosen.size(),
           ", which is not supported; expected ", words.chosen, " or ", words.other);
    chosen.push_back(word == words.chosen);
  }
  return chosen;
}

/// Windows where every n-th layer has full attention; EXAONE writes the pattern as a word of L
/// (local) and G (global).
std::vector<bool> sliding_by_pattern(const ConfigReader& reader, int64_t num_layers) {
  const Json* pattern = reader.find("sliding_window_pattern");
  if (pattern && pattern->is_string()) {
    const auto word = pattern->get<std::string>();
    if (word.empty() || word.find_first_not_of("LG") != std::string::npos)
      fail("key 'sliding_window_pattern' is '", word, "', expected a word of L and G");
    return layers_where(num_layers, [&](int64_t i) {
      return i + 1 < num_layers && word[static_cast<size_t>(i) % word.size()] == 'L';
    });
  }
  // EXAONE 4's small model has neither.
  const bool has_any = pattern || reader.integer("sliding_window");
  const int64_t every = has_any ? reader.size("sliding_window_pattern", kMaxLayers) : 1;
  return layers_where(num_layers, [&](int64_t i) { return (i + 1) % every != 0; });
}

std::vector<bool> sliding_by_max_window_layers(const ConfigReader& reader,
                                               const ModelConfig& config) {
  const int64_t count = config.num_hidden_layers;
  reader.knows({"use_sliding_window", "layer_types", "max_window_layers"});
  const SlidingWindow kind = config.architecture->sliding_window;
  const Json* types = reader.find("layer_types");
  if (kind != SlidingWindow::kFromMaxWindowLayers &&
      !reader.boolean("use_sliding_window").value_or(false)) {
    // transformers 5.24, `Qwen2MoeConfig`, gives such layers a window of 0.
    if (kind == SlidingWindow::kEvenBelowMaxWindowLayers && types && types->is_array() &&
        std::ranges::find(*types, Json("sliding_attention")) != types->end())
      fail(
          "key 'layer_types' holds 'sliding_attention', which is not supported where "
          "use_sliding_window is not true");
    return layers_where(count, [](int64_t) { return false; });
  }
  if (types) return layers_by_word(kWindowWords, *types, count);
  const int64_t border = reader.size("max_window_layers", kMaxLayers, 0);
  const bool is_after = kind != SlidingWindow::kEvenBelowMaxWindowLayers;
  return layers_where(count,
                      [&](int64_t i) { return is_after ? i >= border : i < border && i % 2 == 0; });
}

/// Source: transformers 5.23 `Cohere2MoeConfig`.
std::vector<bool> sliding_after_dense(const ConfigReader& reader, int64_t num_layers) {
  const int64_t first = reader.size("first_k_dense_replace", kMaxLayers, 0);
  const int64_t before = reader.size("prefix_dense_sliding_window_pattern", kMaxLayers);
  const int64_t behind = reader.size("sliding_window_pattern", kMaxLayers);
  return layers_where(num_layers, [&](int64_t i) {
    return i < first ? (i + 1) % before != 0 : (i - first + 1) % behind != 0;
  });
}

/// Source: transformers 5.23 `MiMoV2FlashConfig`; the list is the published config.json's.
std::vector<bool> sliding_by_hybrid_pattern(const ConfigReader& reader, int64_t num_layers) {
  if (reader.find("hybrid_layer_pattern"))
    return layers_by_mark(reader, "hybrid_layer_pattern", num_layers);
  return layers_where(num_layers, [](int64_t i) { return i > 0 && (i + 1) % 6 != 0; });
}

/// Adds whether a layer has a window, by its word under key.
void add_window_by_word(std::string_view key, const Json& word, std::vector<bool>& sliding) {
  if (word != "global" && word != "local")
    fail("key '", key, "' holds ", word.dump(), ", expected global or local");
  sliding.push_back(word == "local");
}

/// Windows by [[words, times], ..]: the words, so many times; or by attention_layers, a word a
/// layer, which precede. Source: transformers 5.24 `GPTNeoConfig`, whose own list the file's
/// replaces.
std::vector<bool> sliding_by_attention_types(const ConfigReader& reader, int64_t num_layers) {
  const Json* list = reader.find("attention_types");
  if (!list || !list->is_array())
    fail_missing("attention_types", "a list of words and how often they repeat");
  std::vector<bool> sliding;
  for (const Json& entry : *list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_array() ||
        !entry[1].is_number_integer() || entry[1] < 0 || entry[1] > kMaxLayers)
      fail("key 'attention_types' holds ", entry.dump(), ", expected [words, times]");
    for (int64_t i = 0; i < entry[1].get<int64_t>() && std::ssize(sliding) <= num_layers; ++i)
      for (const Json& word : entry[0]) add_window_by_word("attention_types", word, sliding);
  }
  if (std::ssize(sliding) != num_layers)
    fail("key 'attention_types' has words for ", counted(sliding.size(), "layer"), ", expected ",
         num_layers);
  const Json* words = reader.find("attention_layers");
  if (!words) return sliding;
  if (!words->is_array() || std::ssize(*words) != num_layers)
    fail("key 'attention_layers' is ", words->dump(), ", expected a word for each of ",
         counted(num_layers, "layer"));
  sliding.clear();
  for (const Json& word : *words) add_window_by_word("attention_layers", word, sliding);
  return sliding;
}

/// All but layers 0, n, 2n, ..
std::vector<bool> sliding_from_first(const ConfigReader& reader, int64_t num_layers) {
  const int64_t every = reader.size("sliding_window_pattern", kMaxLayers);
  return layers_where(num_layers, [&](int64_t i) { return i % every != 0; });
}

/// Layers that no_rope_layers or no_rope_layer_interval leaves RoPE.
std::vector<bool> listed_turns(const ConfigReader& reader, int64_t num_layers) {
  const std::vector<int64_t> listed = integer_list(reader, "no_rope_layers");
  if (!listed.empty() && std::ssize(listed) != num_layers)
    fail("key 'no_rope_layers' has ", counted(listed.size(), "value"), ", expected ", num_layers,
         ", one a layer");
  const int64_t interval = reader.size("no_rope_layer_interval", kMaxLayers);
  return layers_where(num_layers, [&](int64_t i) {
    return listed.empty() ? (i + 1) % interval != 0 : listed[static_cast<size_t>(i)] != 0;
  });
}

/// Source: transformers 5.24 `SmolLM3Config`.
std::vector<bool> sliding_where_unturned(const ConfigReader& reader, int64_t num_layers) {
  const bool is_used = reader.boolean("use_sliding_window").value_or(false);
  const std::vector<bool> turns = listed_turns(reader, num_layers);
  return layers_where(num_layers,
                      [&](int64_t i) { return is_used && !turns[static_cast<size_t>(i)]; });
}

std::vector<bool> said_sliding_layers(const ConfigReader& reader, const ModelConfig& config) {
  const int64_t count = config.num_hidden_layers;
  const auto all = [&](bool slides) {
    return layers_where(count, [slides](int64_t) { return slides; });
  };
  /// By layer_types; where there is none, by another rule, which reads keys.
  const auto typed_or = [&](std::initializer_list<std::string_view> keys, const auto& other) {
    reader.knows(keys);
    const Json* types = reader.find("layer_types");
    const LayerNames& words = config.architecture->recurrence != Mixer::kNone ? kWindowOrMixerWords
                              : config.architecture->indexer != Indexer::kNone
                                  ? kWindowOrIndexerWords
                                  : kWindowWords;
    return types ? layers_by_word(words, *types, count) : other(reader, count);
  };
  switch (config.architecture->sliding_window) {
    case SlidingWindow::kNone:
      return all(false);
    case SlidingWindow::kAllLayers:
      return all(true);
    case SlidingWindow::kAllWhereUsed:
      return all(reader.boolean("use_sliding_window").value_or(false));
    case SlidingWindow::kAllOrTyped:
      return typed_or({}, [&](auto&&...) { return all(true); });
    case SlidingWindow::kTyped:
      return typed_or({}, [&](auto&&...) { return all(false); });
    case SlidingWindow::kTypedOrUnturned:
      return typed_or({"use_sliding_window"}, sliding_where_unturned);
    case SlidingWindow::kPatternAfterDense:
      return typed_or({"sliding_window_pattern", "first_k_dense_replace"}, sliding_after_dense);
    case SlidingWindow::kHybridPattern:
      return typed_or({"hybrid_layer_pattern"}, sliding_by_hybrid_pattern);
    case SlidingWindow::kAfterMaxWindowLayers:
    case SlidingWindow::kEvenBelowMaxWindowLayers:
    case SlidingWindow::kFromMaxWindowLayers:
      return sliding_by_max_window_layers(reader, config);
    case SlidingWindow::kAttentionTypes:
      return sliding_by_attention_types(reader, count);
    case SlidingWindow::kPatternFromFirst:
      return typed_or({"sliding_window_pattern"}, sliding_from_first);
    case SlidingWindow::kPattern:
      return typed_or({"sliding_window_pattern"}, sliding_by_pattern);
  }
  KVCAL_CHECK(false);
  return {};
}

std::vector<bool> sliding_layers(const ConfigReader& reader, const ModelConfig& config) {
  std::vector<bool> sliding = said_sliding_layers(reader, config);
  if (config.architecture->ends_with_full_attention) sliding.back() = false;
  return sliding;
}

void parse_windows(const ConfigReader& reader, ModelConfig& config,
                   const std::vector<bool>& sliding) {
  if (config.architecture->sliding_window != SlidingWindow::kNone) reader.knows({"sliding_window"});
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].has_window = sliding[i];
  if (std::ranges::none_of(sliding, [](bool value) { return value; })) return;
  const auto window = reader.integer("sliding_window");
  if (!window) return;
  if (*window < 1 || *window > kMaxPositions)
    fail("key 'sliding_window' is ", *window, ", expected 1 to ", kMaxPositions, ", or null");
  for (size_t i = 0; i < sliding.size(); ++i)
    if (sliding[i]) config.layers[i].sliding_window = *window;
}

/// Whether each layer has experts, by the family's ExpertLayers.
std::vector<bool> expert_layers(const ConfigReader& reader, const ModelConfig& config) {
  const int64_t count = config.num_hidden_layers;
  switch (config.architecture->expert_layers) {
    case ExpertLayers::kNone:
      return layers_where(count, [](int64_t) { return false; });
    case ExpertLayers::kAll:
      return layers_where(count, [](int64_t) { return true; });
    case ExpertLayers::kTyped:
      reader.knows({"first_k_dense_replace"});
      if (const Json* types = reader.find(kExpertWords.key))
        return layers_by_word(kExpertWords, *types, count);
      if (const Json* marks = reader.find("moe_layer_freq"); marks && marks->is_array())
        return layers_by_mark(reader, "moe_layer_freq", count);
      [[fallthrough]];
    case ExpertLayers::kAfterFirst: {
      const int64_t first = reader.size("first_k_dense_replace", kMaxLayers, 0);
      return layers_where(count, [&](int64_t i) { return i >= first; });
    }
    case ExpertLayers::kEveryStep: {
      const int64_t step = reader.size("decoder_sparse_step", kMaxLayers);
      const std::vector<int64_t> dense = integer_list(reader, "mlp_only_layers");
      return layers_where(count, [&](int64_t i) {
        return (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
      });
    }
    case ExpertLayers::kPeriod: {
      const int64_t period = reader.size("expert_layer_period", kMaxLayers);
      const int64_t offset = reader.size("expert_layer_offset", period - 1, 0);
      return layers_where(count, [&](int64_t i) { return i % period == offset; });
    }
    case ExpertLayers::kWhereEnabled: {
      const bool enabled = reader.boolean("enable_moe_block").value_or(false);
      if (enabled && config.moe.num_experts < 1)
        fail_missing("num_experts", "the number of experts");
      return layers_where(count, [&](int64_t) { return enabled; });
    }
  }
  KVCAL_CHECK(false);
  return {};
}

std::vector<bool> turning_layers(const ConfigReader& reader, const ModelConfig& config,
                                 const std::vector<bool>& sliding) {
  const auto count = static_cast<size_t>(config.num_hidden_layers);
  const Positions positions = config.architecture->positions;
  std::vector<bool> turns(count,
                          positions != Positions::kLearned && positions != Positions::kSinusoidal &&
                              positions != Positions::kNone && positions != Positions::kAlibi);
  if (config.architecture->positions == Positions::kRopeInSlidingLayers &&
      reader.integer("sliding_window"))
    return sliding;
  if (positions == Positions::kRopeInSlidingOrDenseLayers) {
    const bool with_dense = reader.size("prefix_dense_sliding_window_pattern", kMaxLayers) == 1;
    for (size_t i = 0; i < count; ++i)
      turns[i] = sliding[i] || (with_dense && !config.layers[i].is_moe);
    return turns;
  }
  if (positions == Positions::kRopeByLayerType) {
    const Json* ropes = reader.find("rope_parameters");
    if (!ropes) fail_missing("rope_parameters", "the RoPE of each type of layer");
    for (size_t i = 0; i < count; ++i) {
      const std::string_view type = sliding[i] ? "sliding_attention" : "full_attention";
      if (!ropes->contains(type))
        fail_missing("rope_parameters." + std::string(type), "the RoPE of these layers, or null");
      turns[i] = find_field(*ropes, type) != nullptr;
    }
    return turns;
  }
  if (config.architecture->positions != Positions::kRopeWhereListed) return turns;
  return listed_turns(reader, config.num_hidden_layers);
}

}  // namespace

void parse_layers(const ConfigReader& reader, ModelConfig& config) {
  config.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  const std::vector<bool> sliding = sliding_layers(reader, config);
  parse_attention_sizes(reader, config, sliding);
  parse_windows(reader, config, sliding);
  const std::vector<bool> has_experts = expert_layers(reader, config);
  for (size_t i = 0; i < has_experts.size(); ++i)
    config.layers[i].is_moe = has_experts[i] && config.moe.num_experts > 0;
  parse_mixers(reader, config);
  parse_ropes(reader, config);
  if (config.architecture->positions == Positions::kRopeByLayer)
    return parse_ropes_by_layer(reader, config);
  const std::vector<bool> turns = turning_layers(reader, config, sliding);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool is_local = sliding[i] && config.ropes.size() > 1;
    config.layers[i].rope = !turns[i] ? kNoRope : is_local ? 1 : 0;
  }
}

}  // namespace kvcal
