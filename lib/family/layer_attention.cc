// Heads and caches of the layers, and indexers of sparse attention.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/text.h"
#include "family/layer_plan.h"

namespace kvcal {
namespace {

LayerCache latent_cache(const LatentConfig& latent) {
  return {.heads = 1, .k_dim = latent.latent_rank, .v_dim = latent.rope_dim};
}

/// own_value_dim: of V's heads, without latent attention.
void set_common_sizes(ModelConfig& config, int64_t own_value_dim) {
  const LatentConfig& latent = config.latent;
  const bool is_latent = config.architecture->has_latent_attention;
  const int64_t dim = config.head_dim, value_dim = is_latent ? latent.value_dim : own_value_dim;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.attention = {.heads = config.num_attention_heads,
                       .kv_heads = config.num_key_value_heads,
                       .head_dim = dim,
                       .value_dim = value_dim};
    layer.latent = latent;
    layer.cache =
        is_latent
            ? latent_cache(latent)
            : LayerCache{.heads = config.num_key_value_heads, .k_dim = dim, .v_dim = value_dim};
    layer.cache_layer = i;
  }
}

void check_kv_heads(const AttentionSizes& sizes, std::string_view key) {
  if (sizes.kv_heads < 1 || sizes.heads % sizes.kv_heads != 0)
    fail("key '", key, "' gives ", counted(sizes.heads, "head"), " and ", sizes.kv_heads,
         " KV heads, expected a multiple");
}

/// Heads of Q of each layer. Source: transformers 5.23 `LagunaConfig`.
void parse_heads_by_layer(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "num_attention_heads_per_layer";
  const Json* list = reader.find(kKey);
  if (!list) return;
  check_one_a_layer(kKey, *list, std::ssize(config.layers));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionSizes& sizes = config.layers[i].attention;
    const Json& heads = list->at(i);
    if (!heads.is_number_integer() || heads < 1 || heads > kMaxWidth / sizes.head_dim)
      fail("key '", kKey, "' holds ", heads.dump(), ", expected numbers of heads");
    sizes.heads = heads.get<int64_t>();
    check_kv_heads(sizes, kKey);
  }
}

/// KV heads of layers with a window: twice those of the others. Source: transformers 5.23
/// `MiMoV2FlashAttention`.
void parse_window_heads(const ConfigReader& reader, ModelConfig& config,
                        const std::vector<bool>& sliding) {
  constexpr std::string_view kKey = "swa_num_key_value_heads";
  const int64_t heads = reader.integer(kKey).value_or(2 * config.num_key_value_heads);
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    LayerConfig& layer = config.layers[i];
    layer.attention.kv_heads = layer.cache.heads = heads;
    check_kv_heads(layer.attention, kKey);
  }
}

/// Sets a layer's sizes, for its heads of Q. Throws Error, naming the keys that said them.
void set_heads(LayerConfig& layer, int64_t kv_heads, int64_t head_dim, std::string_view heads_key,
               std::string_view dim_key) {
  const int64_t heads = layer.attention.heads;
  if (kv_heads < 1 || heads % kv_heads != 0)
    fail("key '", heads_key, "' is ", kv_heads, ", expected a divisor of num_attention_heads ",
         heads);
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > 4096 || heads * head_dim > kMaxWidth)
    fail("key '", dim_key, "' is ", head_dim, ", expected an even number up to 4096");
  layer.attention.kv_heads = kv_heads;
  layer.attention.head_dim = layer.attention.value_dim = head_dim;
  layer.cache = {.heads = kv_heads, .k_dim = head_dim, .v_dim = head_dim};
}

/// Sets the heads of Q of a layer. Throws Error, naming the key that said them.
void set_query_heads(LayerConfig& layer, int64_t heads, std::string_view key) {
  if (heads < 1 || heads > kMaxWidth / layer.attention.head_dim)
    fail("key '", key, "' is ", heads, ", expected 1 or more");
  layer.attention.heads = heads;
  check_kv_heads(layer.attention, key);
}

/// transformers 5 writes the layers that differ as {"5": {"head_dim": 512}}. Calls read(layer,
/// values, name of values) for each; values holds some of keys, others are refused.
void for_layer_overrides(const Json& overrides, ModelConfig& config,
                         const std::vector<std::string_view>& keys, const auto& read) {
  if (!overrides.is_object()) fail_kind("per_layer_config", "an object", overrides);
  for (const auto& [number, values] : overrides.items()) {
    const std::string key = "per_layer_config." + number;
    if (!values.is_object()) fail_kind(key, "an object", values);
    int64_t at = -1;
    for (int64_t i = 0; i < config.num_hidden_layers; ++i)
      if (number == std::to_string(i)) at = i;
    if (at < 0)
      fail("key '", key, "' names no layer, expected 0 to ", config.num_hidden_layers - 1);
    for (const auto& [name, value] : values.items())
      if (std::ranges::find(keys, name) == keys.end())
        fail("key '", key, "' holds '", name, "', which is not supported; expected ",
             join(keys, ", "));
    read(config.layers[static_cast<size_t>(at)], values, key);
  }
}

void read_layer_overrides(const Json& overrides, ModelConfig& config) {
  const auto read = [](LayerConfig& layer, const Json& values, const std::string& key) {
    if (const auto heads = optional_int(values, "num_attention_heads"))
      set_query_heads(layer, *heads, key + ".num_attention_heads");
    set_heads(layer, optional_int(values, "num_key_value_heads").value_or(layer.attention.kv_heads),
              optional_int(values, "head_dim").value_or(layer.attention.head_dim),
              key + ".num_key_value_heads", key + ".head_dim");
  };
  for_layer_overrides(overrides, config, {"num_attention_heads", "head_dim", "num_key_value_heads"},
                      read);
}

/// A size of a layer's latent attention: values[name], or usual where it is absent.
int64_t latent_size(const Json& values, const std::string& key, std::string_view name,
                    int64_t usual, int64_t most) {
  const int64_t size = optional_int(values, name).value_or(usual);
  if (size < 1 || size > most)
    fail("key '", key, ".", name, "' is ", size, ", expected 1 to ", most);
  return size;
}

/// Source: transformers 5.24 `Dots3NoteTextConfig.validate_architecture`.
void read_latent_override(const ModelConfig& config, LayerConfig& layer, const Json& values,
                          const std::string& key) {
  const auto size = [&](std::string_view name, int64_t usual, int64_t most) {
    return latent_size(values, key, name, usual, most);
  };
  LatentConfig& latent = layer.latent;
  AttentionSizes& sizes = layer.attention;
  latent.query_rank = size("q_lora_rank", latent.query_rank, kMaxWidth);
  latent.latent_rank = size("kv_lora_rank", latent.latent_rank, kMaxWidth);
  latent.nope_dim = size("qk_nope_head_dim", latent.nope_dim, 4096);
  latent.rope_dim = size("qk_rope_head_dim", latent.rope_dim, 4096);
  latent.value_dim = size("v_head_dim", latent.value_dim, 4096);
  const int64_t head_dim = latent.nope_dim + latent.rope_dim;
  const int64_t heads = size("num_attention_heads", sizes.heads, kMaxWidth / head_dim);
  if (size("num_key_value_heads", heads, kMaxWidth) != heads)
    fail("key '", key, ".num_key_value_heads' is not num_attention_heads ", heads);
  if (latent.rope_dim % 2 != 0 || head_dim % 2 != 0)
    fail("key '", key, "' has heads of ", latent.nope_dim, " and ", latent.rope_dim,
         " dimensions, of which the latter turn; expected even numbers");
  if (layer.has_window && size("head_dim", head_dim, 8192) != head_dim)
    fail("key '", key, ".head_dim' is ", optional_int(values, "head_dim").value_or(0),
         ", expected qk_nope_head_dim and qk_rope_head_dim together, ", head_dim);
  sizes = {.heads = heads, .kv_heads = heads, .head_dim = head_dim, .value_dim = latent.value_dim};
  layer.cache = latent_cache(latent);
  layer.softmax_factor = static_cast<float>(
      std::sqrt(static_cast<double>(config.head_dim) / static_cast<double>(head_dim)));
}

/// Sizes of latent attention in layers that have their own.
void parse_latents_by_layer(const ConfigReader& reader, ModelConfig& config,
                            const std::vector<bool>& sliding) {
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].has_window = sliding[i];
  const Json* overrides = reader.find("per_layer_config");
  if (!overrides) return;
  for_layer_overrides(*overrides, config,
                      {"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank",
                       "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"},
                      [&](LayerConfig& layer, const Json& values, const std::string& key) {
                        read_latent_override(config, layer, values, key);
                      });
}

/// Sizes of layers without a window, and whether K is V there. Source: transformers 5.23
/// `Gemma4TextConfig`.
void parse_global_heads(const ConfigReader& reader, ModelConfig& config,
                        const std::vector<bool>& sliding) {
  const bool has_one_projection = reader.boolean("attention_k_eq_v").value_or(false);
  const Json* overrides = reader.find("per_layer_config");
  if (overrides) read_layer_overrides(*overrides, config);
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i]) continue;
    LayerConfig& layer = config.layers[i];
    layer.has_value_projection = !has_one_projection;
    if (overrides) continue;
    const auto kv_heads =
        has_one_projection ? reader.integer("num_global_key_value_heads") : std::nullopt;
    set_heads(layer, kv_heads.value_or(config.num_key_value_heads),
              reader.size("global_head_dim", 4096), "num_global_key_value_heads",
              "global_head_dim");
  }
}

/// Heads of Q of layers with a window. Source: transformers 5.24 `Step3p7TextConfig`.
void parse_window_query_heads(const ConfigReader& reader, ModelConfig& config,
                              const std::vector<bool>& sliding) {
  constexpr std::string_view kKey = "num_sliding_attention_heads";
  if (const Json* overrides = reader.find("per_layer_config")) {
    reader.knows({kKey});
    return read_layer_overrides(*overrides, config);
  }
  const auto heads = reader.integer(kKey);
  for (size_t i = 0; heads && i < sliding.size(); ++i)
    if (sliding[i]) set_query_heads(config.layers[i], *heads, reader.name_of(kKey));
}

/// The last layers read the cache of the last layer before them that has, or has not, a window as
/// they do. Source: transformers 5.23 `Gemma4TextConfig.kv_sharing_modes`.
void share_caches(const ConfigReader& reader, ModelConfig& config,
                  const std::vector<bool>& sliding) {
  const auto said = reader.integer("num_kv_shared_layers");
  if (!said || *said == 0) return;
  const int64_t count = config.num_hidden_layers;
  const int64_t first = count - reader.size("num_kv_shared_layers", count - 1, 0);
  const int64_t width = reader.boolean("use_double_wide_mlp").value_or(false) ? 2 : 1;
  for (int64_t i = first; i < count; ++i) {
    int64_t source = first - 1;
    const bool slides = sliding[static_cast<size_t>(i)];
    while (source >= 0 && sliding[static_cast<size_t>(source)] != slides) --source;
    if (source < 0)
      fail("key 'num_kv_shared_layers' is ", *said, ": layer ", i, ", which has ",
           slides ? "a" : "no", " sliding window, finds no such layer before layer ", first,
           " whose cache it could read");
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const LayerConfig& from = config.layers[static_cast<size_t>(source)];
    if (layer.attention.head_dim != from.attention.head_dim)
      fail("layer ", i, " has heads of ", layer.attention.head_dim,
           " and reads the cache of layer ", source, " with heads of ", from.attention.head_dim);
    layer.attention = from.attention;
    layer.cache = from.cache;
    layer.cache_layer = source;
    layer.has_own_cache = false;
    layer.intermediate_size = width * config.intermediate_size;
  }
}

}  // namespace

void parse_attention_sizes(const ConfigReader& reader, ModelConfig& config,
                           const std::vector<bool>& sliding) {
  const bool has_value_dim = config.architecture->has_value_dim && reader.integer("v_head_dim");
  set_common_sizes(config, has_value_dim ? reader.size("v_head_dim", 4096) : config.head_dim);
  if (config.architecture->has_heads_by_layer) parse_heads_by_layer(reader, config);
  if (config.architecture->has_window_heads) parse_window_heads(reader, config, sliding);
  if (config.architecture->has_latent_by_layer) parse_latents_by_layer(reader, config, sliding);
  if (config.architecture->has_window_query_heads)
    parse_window_query_heads(reader, config, sliding);
  if (config.architecture->has_global_heads) parse_global_heads(reader, config, sliding);
  if (config.architecture->shares_caches) share_caches(reader, config, sliding);
}

namespace {

/// Fails where the first layer has none: it could use no selection.
void set_layers(ModelConfig& config, std::string_view key, const std::vector<bool>& has_indexer) {
  const auto count = static_cast<size_t>(config.num_hidden_layers);
  if (has_indexer.size() < count)
    fail("key '", key, "' has ", counted(has_indexer.size(), "value"), ", expected ", count,
         ", one a layer");
  if (!has_indexer[0])
    fail("key '", key, "' gives layer 0 no indexer of its own; no layer before it selects keys");
  for (size_t i = 0; i < count; ++i) {
    config.layers[i].has_indexer = has_indexer[i];
    config.layers[i].reads_selected = true;
  }
}

/// Indexers in the layers of the type indexed_attention alone. Source: transformers 5.24,
/// models/dots3_note `Dots3NoteTextAttention`.
void set_typed_layers(const ConfigReader& reader, ModelConfig& config) {
  const Json* types = reader.find("layer_types");
  for (size_t i = 0; types && i < types->size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.has_indexer = layer.reads_selected = types->at(i) == "indexed_attention";
  }
  if (config.layers_where(&LayerConfig::has_indexer).empty()) config.indexer = {};
}

/// key: of a list of words, or of a text with a letter a layer.
std::vector<bool> typed_layers(std::string_view key, const Json& types) {
  std::vector<bool> layers;
  if (types.is_string()) {
    for (const char type : types.get<std::string>()) {
      if (type != 'F' && type != 'S')
        fail("key '", key, "' holds '", std::string(1, type), "', expected F or S");
      layers.push_back(type == 'F');
    }
    return layers;
  }
  if (!types.is_array()) fail_kind(std::string(key), "a list", types);
  for (const Json& type : types) {
    if (type != "full" && type != "shared")
      fail("key '", key, "' holds ", type.dump(), ", expected \"full\" or \"shared\"");
    layers.push_back(type == "full");
  }
  return layers;
}

}  // namespace

namespace {

/// Every layer with attention has an indexer. Source: transformers 5.24, models/qwen4_exp
/// `Qwen4ExpTextConfig`.
void parse_block_indexers(const ConfigReader& reader, ModelConfig& config) {
  const int64_t block = reader.size("indexer_compress_ratio", kMaxWidth);
  const int64_t rotary = config.ropes.empty() ? 0 : config.ropes[0].rotary_dim;
  config.indexer = {.topk = reader.size("index_topk", kMaxPositions),
                    .heads = reader.size("index_n_heads", 4096),
                    .head_dim = reader.size("index_head_dim", 4096, rotary),
                    .block = block};
  if (config.indexer.topk % block != 0)
    fail("key '", reader.name_of("index_topk"), "' is ", config.indexer.topk,
         ", expected a multiple of indexer_compress_ratio ", block);
  for (LayerConfig& layer : config.layers)
    layer.has_indexer = layer.reads_selected = layer.has_attention;
}

}  // namespace

// Source: transformers 5.23, `GlmMoeDsaConfig`; vLLM 0.33 reads the same keys but indexer_types.
void parse_indexers(const ConfigReader& reader, ModelConfig& config) {
  const Indexer kind = config.architecture->indexer;
  if (kind == Indexer::kNone) return;
  if (kind == Indexer::kBlocks) return parse_block_indexers(reader, config);
  config.indexer = {.topk = reader.size("index_topk", kMaxPositions),
                    .heads = reader.size("index_n_heads", 4096),
                    .head_dim = reader.size("index_head_dim", 4096, config.latent.rope_dim),
                    .rope_is_interleaved = kind == Indexer::kInterleaved};
  if (!config.has_query_rank)
    fail(
        "key 'q_lora_rank' is missing or null; the indexer of sparse attention reads the queries "
        "of that rank");
  if (config.architecture->sliding_window == SlidingWindow::kTyped)
    return set_typed_layers(reader, config);
  for (const std::string_view key : {"indexer_types", "index_topk_pattern"})
    if (const Json* types = reader.find(key))
      return set_layers(config, key, typed_layers(key, *types));
  const int64_t period =
      reader.integer("index_topk_freq") ? reader.size("index_topk_freq", kMaxLayers) : 1;
  const int64_t offset = reader.integer("index_skip_topk_offset").value_or(2);
  std::vector<bool> has_indexer;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    has_indexer.push_back(std::max<int64_t>(layer - offset + 1, 0) % period == 0);
  set_layers(config, "index_skip_topk_offset", has_indexer);
}

}  // namespace kvcal
