#include <algorithm>

#include "core/folder.h"
#include "stored/kv_scales.h"
#include "stored/scales_file.h"

namespace kvcal {
namespace {

/// Throws Error unless the key holds this number.
template <class Number>
void expect_number(const Json& file, std::string_view key, Number expected) {
  const double found = required_number(file, key);
  if (found != static_cast<double>(expected))
    fail("key '", key, "' is ", found, ", expected ", expected);
}

/// Whether heads have a scale each.
bool is_per_head(const Json& file) {
  const std::string type = required_string(file, "quant_type");
  if (type != "per_head" && type != "per_tensor")
    fail("quant_type is '", type, "', expected 'per_head' or 'per_tensor'");
  return type == "per_head";
}

/// Heads of every layer, as the memory manager has one number for all. Throws Error where layers
/// differ.
int64_t heads_of(const ModelConfig& config) {
  const int64_t heads = config.cache(0).heads;
  for (const LayerConfig& layer : config.layers)
    if (!layer.has_attention || layer.cache.heads != heads)
      fail(
          "holds one scale for each layer and head, and layers of the model differ in their heads");
  return heads;
}

void check_header(const Json& file, const ModelConfig& config, int64_t heads, size_t columns) {
  constexpr auto kLargest = fp8::max_value(fp8::Format::kE4m3Fn);
  expect_number(file, "qmin", -kLargest);
  expect_number(file, "qmax", kLargest);
  expect_number(file, "num_layers", config.num_hidden_layers);
  expect_number(file, "num_head", heads);
  const Json& shape = required_list(file, "scales_shape", "the shape of 'scales'");
  if (shape != Json{config.num_hidden_layers, columns})
    fail("scales_shape is ", shape.dump(), ", expected [", config.num_hidden_layers, ",", columns,
         "]");
}

/// One layer's row: the scales of K, then those of V.
LayerKvScales read_row(const Json& row, size_t columns) {
  if (!row.is_array()) fail("expected a list of scales, found ", kind_of(row));
  if (row.size() != columns) fail(counted(row.size(), "scale"), ", expected ", columns);
  LayerKvScales layer;
  for (size_t i = 0; i < columns; ++i)
    (i < columns / 2 ? layer.k : layer.v).push_back(scale_of(row[i]));
  return layer;
}

}  // namespace

ScalesBeside read_lightllm_file(const fs::path& path, const ModelConfig& config) {
  const std::string text = read_text(path, kScalesFileLimits.max_bytes);
  return in_context(path.string(), [&] {
    const Json file = parse_model_json(text, kScalesFileLimits);
    const int64_t heads = heads_of(config);
    const size_t columns = is_per_head(file) ? 2 * static_cast<size_t>(heads) : 2;
    check_header(file, config, heads, columns);
    const Json& rows = required_list(file, "scales", "a list of layers");
    if (rows.size() != static_cast<size_t>(config.num_hidden_layers))
      fail("scales of ", counted(rows.size(), "layer"), ", the model has ",
           config.num_hidden_layers);
    ScalesBeside scales;
    for (size_t layer = 0; layer < rows.size(); ++layer)
      scales.layers.push_back(in_context("layer " + std::to_string(layer),
                                         [&] { return read_row(rows[layer], columns); }));
    return scales;
  });
}

std::string lightllm_architecture(const Json& model) {
  const Json* names = member(model, "architectures");
  if (!names || !names->is_array() || names->empty() || !names->front().is_string())
    return "unknown_architecture";
  return names->front().get<std::string>();
}

extern constinit const StoredFormat kLightllmFormat{
    .name = "lightllm",
    // ExportCalibrationMemoryManager, which wrote such files, saw K as it enters the cache.
    .keys = KeyPosition::kAfterRope,
    .find_beside =
        [](const fs::path& place) {
          return find_scales_file(place, kLightllmName, "scales_shape");
        },
    .read_beside = read_lightllm_file};

}  // namespace kvcal
