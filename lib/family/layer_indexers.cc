// Indexers of sparse attention.
#include <algorithm>
#include <string>
#include <vector>

#include "family/config_reader.h"

namespace kvcal {
namespace {

/// Fails where the first layer has none: it could use no selection.
void set_layers(ModelConfig& config, std::string_view key, const std::vector<bool>& has_indexer) {
  const auto count = static_cast<size_t>(config.num_hidden_layers);
  if (has_indexer.size() < count)
    fail("key '", key, "' has ", has_indexer.size(), " entries, expected ", count, ", one a layer");
  if (!has_indexer[0])
    fail("key '", key, "' gives layer 0 no indexer of its own; no layer before it selects keys");
  for (size_t i = 0; i < count; ++i) config.layers[i].has_indexer = has_indexer[i];
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

// Source: transformers 5.23, `GlmMoeDsaConfig`; vLLM 0.33 reads the same keys but indexer_types.
void parse_indexers(const ConfigReader& reader, ModelConfig& config) {
  const Indexer kind = config.architecture->indexer;
  if (kind == Indexer::kNone) return;
  config.indexer = {.topk = reader.size("index_topk", kMaxPositions),
                    .heads = reader.size("index_n_heads", 4096),
                    .head_dim = reader.size("index_head_dim", 4096, config.latent.rope_dim),
                    .rope_is_interleaved = kind == Indexer::kInterleaved};
  if (!config.has_query_rank)
    fail(
        "key 'q_lora_rank' is missing or null; the indexer of sparse attention reads the queries "
        "of that rank");
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
