#include <algorithm>
#include <cmath>
#include <vector>

#include "core/folder.h"
#include "stored/kv_scales.h"
#include "stored/scales_file.h"

namespace kvcal {
namespace {

/// The numbers of a value, which may be lists of lists, as numpy flattens it.
void flatten(const Json& value, std::vector<Scale>& all) {
  if (!value.is_array()) return all.push_back(scale_of(value));
  for (const Json& one : value) flatten(one, all);
}

/// The layers whose scales the lists hold, in their order.
std::vector<int64_t> layers_of(const Json& file, const ModelConfig& config) {
  const std::vector<int64_t> cached = config.attention_layers();
  const Json* ids = find_field(file, "layer_ids");
  std::vector<int64_t> layers;
  if (ids && !ids->is_array()) fail_kind("layer_ids", "a list of layers", *ids);
  if (ids)
    for (const Json& id : *ids) {
      if (!id.is_number_integer()) fail("layer_ids: expected a whole number, found ", id.dump());
      layers.push_back(id.get<int64_t>());
    }
  else
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers.push_back(layer);
  std::vector<int64_t> sorted = layers;
  std::ranges::sort(sorted);
  if (sorted != cached)
    fail("has scales of ", counted(layers.size(), "layer"), ", expected each of the ",
         counted(cached.size(), "layer"), " with attention once");
  return layers;
}

/// One scale for all heads, or one for each head, from one for each channel: an FP8 cache has none
/// for channels of one head.
std::vector<Scale> by_head(const std::vector<Scale>& all, int64_t width) {
  std::vector<Scale> scales;
  for (auto head = all.begin(); head != all.end(); head += width) {
    const auto other = std::find_if(head, head + width,
                                    [&](const Scale& scale) { return scale.value != head->value; });
    if (other != head + width)
      fail("channels of head ", scales.size(), " have scales ", head->value, " and ", other->value,
           "; scales of FP8 caches are those of heads");
    scales.push_back(*head);
  }
  return scales;
}

/// What the scales of the file are for, and the factor that makes such scales of them.
struct FileScales {
  KvFormat format;
  double factor;
};

/// A file whose qmax is INT8's is of an INT8 cache; others become FP8's. Source: ONNX Runtime GenAI
/// 0.18 `get_kv_cache_calibration_factor`.
FileScales scales_of(const Json& file) {
  const double largest = required_number(file, "qmax");
  if (largest <= 0) fail("qmax is ", largest, ", expected a positive number");
  if (largest == kOnnxruntimeGenaiInt8Most) return {KvFormat::int8(), 1.0};
  const KvFormat fp8 = fp8::Format::kE4m3Fn;
  return {fp8, largest / static_cast<double>(fp8.largest_code())};
}

std::vector<Scale> read_side(const Json& value, int64_t heads, int64_t width,
                             const FileScales& file) {
  std::vector<Scale> scales;
  flatten(value, scales);
  if (scales.size() != 1 && scales.size() != static_cast<size_t>(heads * width))
    fail(counted(scales.size(), "scale"), ", expected 1 or ", counted(heads, "head"), " of ",
         counted(width, "channel"));
  if (file.format.is_int8() && scales.size() > 1)
    scales = joined_where_equal(std::move(scales), heads);
  else if (scales.size() > 1)
    scales = by_head(scales, width);
  for (Scale& scale : scales) {
    scale.value = static_cast<float>(static_cast<double>(scale.value) * file.factor);
    if (!is_usable(scale))
      fail("scale ", scale.value, " for ", file.format.is_int8() ? "INT8" : "FP8", ", expected ",
           kUsableScale);
  }
  return scales;
}

const Json& side_of(const Json& file, const char* key, size_t count) {
  const Json* scales = find_field(file, "scales");
  if (!scales || !scales->is_object()) fail_missing("scales", "an object");
  const Json& side = required_list(*scales, key, "a list of layers");
  if (side.size() != count) fail(key, " has ", counted(side.size(), "layer"), ", expected ", count);
  return side;
}

}  // namespace

/// Format: {"scales": {"k_scales": […], "v_scales": […]}, "qmax": …, "layer_ids": […]}, each entry
/// of a list a number or one for each channel, head by head; or such an object under "model", the
/// name of the graph's file. Without layer_ids the entries are those of all layers. real = scale ·
/// code; scale = threshold / qmax, which is 448 of FP8, 128 of INT8 and 8 of INT4, and another
/// cache's scales follow by their ratio. Source: ONNX Runtime GenAI 0.18 models/builders/base.py,
/// `make_kv_cache_scale_initializers`.
ScalesBeside read_onnxruntime_genai_file(const fs::path& path, const ModelConfig& config) {
  const std::string text = read_text(path, kScalesFileLimits.max_bytes);
  return in_context(path.string(), [&] {
    const Json whole = parse_model_json(text, kScalesFileLimits);
    const Json* section = member(whole, "model");
    const Json& file = section ? *section : whole;
    const std::vector<int64_t> layers = layers_of(file, config);
    const Json &k = side_of(file, "k_scales", layers.size()),
               &v = side_of(file, "v_scales", layers.size());
    const FileScales made = scales_of(file);
    ScalesBeside scales{.format = made.format};
    scales.layers.resize(static_cast<size_t>(config.num_hidden_layers));
    for (size_t i = 0; i < layers.size(); ++i)
      in_context("layer " + std::to_string(layers[i]), [&] {
        const LayerCache& cache = config.cache(layers[i]);
        LayerKvScales& own = scales.layers[static_cast<size_t>(layers[i])];
        own.k = in_context("K", [&] { return read_side(k[i], cache.heads, cache.k_dim, made); });
        own.v = in_context("V", [&] { return read_side(v[i], cache.heads, cache.v_dim, made); });
        if (!made.format.is_int8() && own.k.size() != own.v.size())
          fail(counted(own.k.size(), "scale"), " of K, ", own.v.size(), " of V");
      });
    return scales;
  });
}

extern constinit const StoredFormat kOnnxruntimeGenaiFormat{
    .name = "onnxruntime-genai",
    // kv_cache_calibration.py, whose tool writes such files, reads the graph's present.*.key.
    .keys = KeyPosition::kAfterRope,
    .find_beside =
        [](const fs::path& place) {
          return find_scales_file(place, kOnnxruntimeGenaiName, "k_scales");
        },
    .read_beside = read_onnxruntime_genai_file};

}  // namespace kvcal
