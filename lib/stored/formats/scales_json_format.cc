#include <algorithm>
#include <unordered_map>

#include "core/folder.h"
#include "core/json.h"
#include "quant/scale.h"
#include "stored/kv_scales.h"
#include "stored/scales_file.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

KvDType parse_file_dtype(std::string_view name) {
  if (name == "float8_e4m3fn") return KvDType::kFp8E4m3;
  if (name == "float8_e5m2") return KvDType::kFp8E5m2;
  fail("dtype is '", name, "', expected 'float8_e4m3fn' or 'float8_e5m2'");
}

constexpr size_t kMostRanks = 1024;

void read_rank(const Json& rank, const ModelConfig& config, ScalesFile& file) {
  std::vector<Scale>& own = file.ranks.emplace_back();
  if (!rank.is_object()) fail("expected an object of layers, found ", kind_of(rank));
  if (rank.size() != static_cast<size_t>(config.num_hidden_layers))
    fail(counted(rank.size(), "layer"), ", the model has ", config.num_hidden_layers);
  // An object finds keys by a linear search, which is slow for many layers.
  std::unordered_map<std::string_view, const Json*> by_layer;
  for (const auto& [key, value] : rank.get_ref<const Json::object_t&>())
    by_layer.emplace(key, &value);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string key = std::to_string(layer);
    const auto found = by_layer.find(key);
    if (found == by_layer.end() || found->second->is_null()) fail_missing(key, "a number");
    if (!found->second->is_number()) fail_kind(key, "a number", *found->second);
    const auto scale = found->second->get<float>();
    if (!is_usable({scale})) fail("layer ", layer, " has ", scale, ", expected ", kUsableScale);
    own.push_back({scale});
    LayerKvScales& entry = file.layers[static_cast<size_t>(layer)];
    const float largest = entry.k.empty() ? scale : std::max(scale, entry.k[0].value);
    entry.k = entry.v = {{largest}};
  }
}

}  // namespace

ScalesFile read_scales_json(const std::filesystem::path& path, const ModelConfig& config) {
  const std::string text = read_text(path, kSmallFileLimits.max_bytes);
  return in_context(path.string(), [&] {
    const Json json = parse_model_json(text);
    const auto model_type = optional_string(json, "model_type");
    if (model_type && !is_type_of(*model_type, config))
      fail("model_type is '", *model_type, "', the model is '", config.model_type, "'");
    const Json* cache = find_field(json, "kv_cache");
    if (!cache) fail_missing("kv_cache", "an object");
    ScalesFile file;
    file.dtype = parse_file_dtype(required_string(*cache, "dtype"));
    const Json* ranks = find_field(*cache, "scaling_factor");
    if (!ranks || !ranks->is_object() || ranks->empty())
      fail("key 'scaling_factor' is missing or empty, expected an object of ranks");
    if (ranks->size() > kMostRanks)
      fail(counted(ranks->size(), "rank"), ", expected at most ", kMostRanks);
    file.layers.resize(static_cast<size_t>(config.num_hidden_layers));
    for (size_t rank = 0; rank < ranks->size(); ++rank) {
      const std::string key = std::to_string(rank);
      const Json* entry = find_field(*ranks, key);
      if (!entry) fail("rank ", key, " of ", ranks->size(), " is missing");
      in_context("rank " + key, [&] { read_rank(*entry, config, file); });
    }
    return file;
  });
}

namespace {

/// The file itself, or the one in a folder. Any JSON file that no other format claims is taken for
/// one, so that the reader says what it lacks.
std::optional<fs::path> find_scales_json(const fs::path& place) {
  return find_scales_file(place, kScalesJsonName, {});
}

ScalesBeside read_scales_json_ranks(const fs::path& file, const ModelConfig& config) {
  ScalesFile scales = read_scales_json(file, config);
  return {.ranks = std::move(scales.ranks), .layers = {}, .format = fp8_format(scales.dtype)};
}

}  // namespace

extern constinit const StoredFormat kScalesJsonFormat{.name = "scales-json",
                                                      .keys = KeyPosition::kBeforeRope,
                                                      .find_beside = find_scales_json,
                                                      .read_beside = read_scales_json_ranks};

}  // namespace kvcal
