#include "stored/kv_scales.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/output.h"
#include "quant/scale.h"
#include "stored/stored_format.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// channels: that the tensor has one scale for each of; 0: it has them for heads.
std::vector<Scale> scales_of(const TensorView& tensor, int64_t heads, std::string_view kind,
                             int64_t channels = 0) {
  if (!is_float(tensor.dtype))
    fail(tensor.name, " is ", tensor.dtype, ", expected F32, F16 or BF16");
  const uint64_t count = element_count(tensor.shape);
  if (channels > 0 && count != static_cast<uint64_t>(channels))
    fail(tensor.name, " is ", tensor.shape, ", expected one value for each of ",
         counted(channels, "channel"));
  if (channels == 0 && count != 1 && count != static_cast<uint64_t>(heads))
    fail(tensor.name, " is ", tensor.shape, ", expected one value or one for each of ", heads, " ",
         kind, " heads");
  std::vector<Scale> scales;
  for (const float value : as_float32(std::span(&tensor, 1))) {
    if (!is_usable({value})) fail(tensor.name, " holds ", value, ", expected ", kUsableScale);
    scales.push_back({value});
  }
  return scales;
}

/// FP8 is symmetric; some files state this with zero points of 0, as vLLM-Ascend's with offsets.
void check_zero_point(const ScaleTensors& tensors, const std::string& scale_name,
                      bool is_per_channel) {
  const TensorView* zeros = tensors.find(zero_point_name(scale_name, is_per_channel));
  if (zeros && std::ranges::any_of(zeros->bytes, [](std::byte b) { return b != std::byte{0}; }))
    fail(zeros->name, " is not 0, expected symmetric scales");
}

/// Scales of one attention module under one format's names.
struct FoundScales {
  const TensorView *k, *v;  ///< the same tensor where the format has one scale for both
  LayerKvScales scales;
};

std::optional<FoundScales> find_scales(const ScaleTensors& tensors, const std::string& module,
                                       const KvScaleNames& format, const ModelConfig& config,
                                       int64_t layer) {
  const int64_t heads = config.cache(layer).heads;
  for (const std::string_view name : {format.q, format.k, format.v})
    if (!name.empty()) check_zero_point(tensors, module + std::string(name), format.is_per_channel);
  const TensorView* k = tensors.find(module + std::string(format.k));
  const TensorView* v = tensors.find(module + std::string(format.v));
  if ((k == nullptr) != (v == nullptr))
    fail(module, " has a ", (k ? format.k : format.v).substr(1), " and no ",
         (k ? format.v : format.k).substr(1));
  if (!k) return std::nullopt;
  const LayerCache& cache = config.cache(layer);
  const auto of_side = [&](const TensorView& tensor, int64_t head_dim) {
    if (!format.is_per_channel) return scales_of(tensor, heads, "KV");
    return joined_where_equal(scales_of(tensor, heads, "KV", heads * head_dim), heads);
  };
  LayerKvScales scales{.k = of_side(*k, cache.k_dim), .v = of_side(*v, cache.v_dim)};
  const TensorView* q = format.q.empty() ? nullptr : tensors.find(module + std::string(format.q));
  if (q) scales.q = scales_of(*q, config.attention(layer).heads, "attention");
  return FoundScales{k, v, std::move(scales)};
}

/// Throws Error where two places differ: engines disagree on which they read.
void check_same(const FoundScales& first, const FoundScales& second) {
  const auto differ = [](const std::vector<Scale>& a, const std::vector<Scale>& b) {
    return !std::ranges::equal(a, b, {}, &Scale::value, &Scale::value);
  };
  if (second.k == second.v) {
    float largest = 0.0f;
    for (const auto* side : {&first.scales.k, &first.scales.v})
      for (const Scale scale : *side) largest = std::max(largest, scale.value);
    if (second.scales.k[0].value == largest) return;
  }
  if (differ(first.scales.k, second.scales.k))
    fail(first.k->name, " and ", second.k->name, " hold different scales of the same K");
  if (differ(first.scales.v, second.scales.v))
    fail(first.v->name, " and ", second.v->name, " hold different scales of the same V");
}

}  // namespace

std::vector<Scale> joined_where_equal(std::vector<Scale> channels, int64_t heads) {
  const auto is_equal = [](Scale a, Scale b) { return a.value == b.value; };
  const auto width = static_cast<std::ptrdiff_t>(channels.size()) / heads;
  std::vector<Scale> of_heads;
  for (auto head = channels.begin(); head != channels.end(); head += width) {
    if (std::adjacent_find(head, head + width, std::not_fn(is_equal)) != head + width)
      return channels;
    of_heads.push_back(*head);
  }
  const bool is_one = std::ranges::adjacent_find(of_heads, std::not_fn(is_equal)) == of_heads.end();
  if (is_one) of_heads.resize(1);
  return of_heads;
}

ScaleTensors scale_tensors_of(const ModelDir& model_dir) {
  return {.path = model_dir.given_path().string(),
          .find = [&model_dir](std::string_view name) { return model_dir.find(name); },
          .config = model_dir.config()};
}

const KvScaleNames* find_kv_scale_format(const ScaleTensors& tensors, const ModelConfig& config) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const KvScaleNames& format : kv_scale_formats())
      if (config.has_attention(layer) &&
          tensors.find(config.attention_module(layer) + std::string(format.k)))
        return &format;
  return nullptr;
}

std::optional<LayerKvScales> read_layer_scales(const ScaleTensors& tensors,
                                               const ModelConfig& config, int64_t layer) {
  return in_context(tensors.path, [&]() -> std::optional<LayerKvScales> {
    std::optional<FoundScales> first;
    for (const KvScaleNames& format : kv_scale_formats()) {
      auto found = find_scales(tensors, config.attention_module(layer), format, config, layer);
      if (!found) continue;
      if (first)
        check_same(*first, *found);
      else
        first = std::move(found);
    }
    if (!first) return std::nullopt;
    return std::move(first->scales);
  });
}

std::set<std::string, std::less<>> kv_scale_names(const ModelConfig& config) {
  std::set<std::string, std::less<>> names;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.has_attention(layer)) continue;
    const std::string module = config.attention_module(layer);
    names.insert(module + std::string(kProbScale));
    for (const KvScaleNames& format : kv_scale_formats())
      for (const std::string_view name : {format.q, format.k, format.v}) {
        if (name.empty()) continue;
        names.insert(module + std::string(name));
        names.insert(zero_point_name(module + std::string(name), format.is_per_channel));
      }
  }
  return names;
}

namespace {

/// Whether config.json leaves the module's cache in 16 bits: ignore names it, or ModelOpt's map of
/// quantized caches does not.
bool is_ignored(const Json& config, const std::string& module) {
  const Json* caches = member(config, "quantization_config", kQuantizedCachesKey);
  if (caches && caches->is_object() && !caches->contains(module)) return true;
  const Json* ignore = member(config, "quantization_config", "ignore");
  return ignore && ignore->is_array() && std::ranges::find(*ignore, Json(module)) != ignore->end();
}

}  // namespace

std::optional<std::vector<LayerKvScales>> read_checkpoint_scales(const ModelDir& model_dir,
                                                                 const ModelConfig& config,
                                                                 std::span<const int64_t> skipped) {
  return read_all_scales(scale_tensors_of(model_dir), config, skipped);
}

std::optional<std::vector<LayerKvScales>> read_all_scales(const ScaleTensors& tensors,
                                                          const ModelConfig& config,
                                                          std::span<const int64_t> skipped) {
  std::vector<LayerKvScales> layers;
  std::string without;
  int64_t count = 0, wanted = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers.emplace_back();
    if (!config.has_attention(layer)) continue;
    ++wanted;
    if (auto scales = read_layer_scales(tensors, config, layer)) {
      layers.back() = *std::move(scales);
      ++count;
    } else if (!config.has_own_cache(layer)) {
      // Engines dequantize with the reader's scales; a file without them means the source's.
      layers.back() = layers[static_cast<size_t>(config.layer(layer).cache_layer)];
      layers.back().q.clear();
      --wanted;
    } else if (const std::string module = config.attention_module(layer);
               is_ignored(tensors.config, module) ||
               std::ranges::find(skipped, layer) != skipped.end()) {
      layers.back().ignored = true;
    } else {
      without = module;
    }
  }
  if (count == 0) return std::nullopt;
  if (!without.empty())
    fail(tensors.path, ": ", count, " of ", counted(wanted, "layer"), " have KV scales; ", without,
         " has none, and quantization_config does not leave it out (ignore, or ",
         kQuantizedCachesKey, "), nor --kv-cache-dtype-skip-layers, where a command has that");
  return layers;
}

void check_strategy(const KvScheme& scheme, const std::vector<LayerKvScales>& scales,
                    const ModelConfig& config) {
  if (!scheme.strategy) return;
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    const auto heads = static_cast<size_t>(config.cache(static_cast<int64_t>(layer)).heads);
    // Scales of channels are those of their heads, or of the layer, where they are equal.
    if (*scheme.strategy == Strategy::kChannel) continue;
    const size_t wanted = *scheme.strategy == Strategy::kAttnHead ? heads : 1;
    for (const auto* side : {&scales[layer].k, &scales[layer].v})
      if (!side->empty() && side->size() != wanted)
        fail(scheme.where, " has strategy '", name_of(*scheme.strategy), "', ",
             config.attention_module(static_cast<int64_t>(layer)), " has ", side->size(), " ",
             side == &scales[layer].k ? "K" : "V", " scales, expected ", wanted);
  }
}

bool is_type_of(std::string_view model_type, const ModelConfig& config) {
  return model_type == config.model_type ||
         (!config.wrapper_type.empty() && model_type == config.wrapper_type);
}

std::vector<LayerKvScales> doubled_for_fnuz(std::vector<LayerKvScales> scales) {
  for (LayerKvScales& layer : scales)
    for (std::vector<Scale>* side : {&layer.k, &layer.v, &layer.q})
      for (Scale& scale : *side) scale.value *= 2.0f;
  return scales;
}

std::vector<LayerKvScales> unit_scales(const ModelConfig& config) {
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {.k = {Scale{1.0f}}, .v = {Scale{1.0f}}});
}

std::optional<fp8::Format> read_dialect(const Json& config) {
  const Json* word = find_field(config, kDialectKey);
  if (!word) return std::nullopt;
  for (const fp8::Format format :
       {fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz, fp8::Format::kE5m2})
    if (*word == Json(fp8::name_of(format))) return format;
  fail("key '", kDialectKey, "' is ", word->dump(),
       ", expected \"float8_e4m3fn\", \"float8_e4m3fnuz\" or \"float8_e5m2\"");
}

std::optional<fp8::Format> read_dialect(const ModelDir& model) {
  return in_context((model.path() / "config.json").string(),
                    [&] { return read_dialect(model.config()); });
}

std::optional<SmoothedFor> find_smoothed_for(std::string_view name) {
  for (const SmoothedFor cache : {SmoothedFor::kInt8, SmoothedFor::kFp8E4m3})
    if (name == name_of(cache)) return cache;
  return std::nullopt;
}

std::optional<SmoothedFor> smoothed_for(const Json& manifest) {
  const Json* name = member(manifest, "smoothing", "for");
  return name && name->is_string() ? find_smoothed_for(name->get<std::string>()) : std::nullopt;
}

Json smoothing_of_folder(const std::filesystem::path& folder) {
  for (const std::filesystem::path& place : {folder, folder.parent_path()}) {
    const std::filesystem::path file = place / kManifestName;
    if (!is_there(file)) continue;
    try {
      const Json manifest = parse_json(read_text(file, kSmallFileLimits.max_bytes));
      return smoothed_for(manifest) ? manifest.at("smoothing") : Json();
    } catch (const SystemError&) {
      throw;
    } catch (const Error&) {
      return nullptr;
    }
  }
  return nullptr;
}

bool may_be_ruined(SmoothedFor made, const CacheType& cache) {
  return made == SmoothedFor::kFp8E4m3 && is_quantized(cache) &&
         (cache.format || cache.dtype == KvDType::kFp8E5m2);
}

}  // namespace kvcal
