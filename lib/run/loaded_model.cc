#include "run/loaded_model.h"

#include <algorithm>
#include <utility>

#include "convert/source_scales.h"
#include "core/error.h"
#include "core/process.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "family/architecture.h"
#include "forward/engine_cache.h"
#include "run/subject.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr const char* kChoose =
    "choose the cache with --kv-cache-dtype, or scale 1.0 with --unit-scales";

[[noreturn]] void fail_without_scales(const KvScheme& scheme, const char* cache) {
  fail(scheme.where, " says that the cache is ", cache,
       ", and no layer has scales, for which engines take 1.0; ", kChoose);
}

/// Whether config and scales together request FP8. Throws Error where an engine would silently run
/// FP8 with scale 1.0, or would not run: the user must choose.
bool is_fp8_cache(const KvScheme& scheme, bool has_scales, Diagnostics& diagnostics) {
  switch (scheme.cache) {
    case KvScheme::Cache::kNotSaid:
      return has_scales;
    case KvScheme::Cache::kUnquantized:
      if (has_scales)
        diagnostics.warn("the checkpoint has KV scales and " + scheme.where +
                         " is null or absent: the cache is not FP8, as in engines; "
                         "--kv-cache-dtype fp8_e4m3 uses the scales");
      return false;
    case KvScheme::Cache::kFp8:
      if (!has_scales) fail_without_scales(scheme, "FP8");
      return true;
    case KvScheme::Cache::kInt8:
    case KvScheme::Cache::kNvfp4:
      return false;
    case KvScheme::Cache::kOther:
      fail(scheme.where, ": ", scheme.problem, "; ", kChoose);
  }
  return false;
}

void note_ignored(const std::vector<LayerKvScales>& scales, const ModelConfig& config,
                  Diagnostics& diagnostics) {
  std::vector<int64_t> layers;
  for (size_t layer = 0; layer < scales.size(); ++layer)
    if (scales[layer].ignored) layers.push_back(static_cast<int64_t>(layer));
  if (layers.empty()) return;
  diagnostics.note("ignored layers without scales keep a " +
                   std::string(name_of(unquantized_cache_dtype(config))) +
                   " cache: " + range_text(layers));
}

[[noreturn]] void refuse_scales(const std::string& place, const KvFormat& format,
                                const CacheType& type) {
  fail(place, ": holds scales of ", name_of(format), ", the cache is ", name_of(type));
}

/// Format of FP8 scales that a cache takes as they are.
fp8::Format scale_format_of(const CacheType& type) {
  return type.format ? fp8::Format::kE4m3Fn : fp8_format(type.dtype);
}

/// Scales of INT8 as the cache's: those of channels are an INT8 cache's alone.
std::vector<LayerKvScales> from_int8(const CacheType& type, std::vector<LayerKvScales> layers,
                                     const ModelConfig& config) {
  const auto has_channels = [&](size_t layer) {
    return std::ssize(layers[layer].k) > config.cache(static_cast<int64_t>(layer)).heads;
  };
  for (size_t layer = 0; type != CacheFormat::kInt8 && layer < layers.size(); ++layer)
    if (has_channels(layer)) return scales_as(type, with_joined_heads(layers), KvFormat::int8());
  return scales_as(type, std::move(layers), KvFormat::int8());
}

/// Scales from a place, checked against the cache. Scales of E5M2, whose largest value is 57344,
/// would clip almost everything in another cache, and those of FNUZ are twice as large. The reverse
/// clips nothing, and engines do it.
std::vector<LayerKvScales> scales_of_place(const std::string& place, const ModelConfig& config,
                                           const CacheType& type) {
  SourceScales other = read_scales_of(place, config);
  if (other.dialect.is_int8()) return from_int8(type, std::move(other.layers), config);
  if (other.dialect == scale_format_of(type)) return scales_as(type, std::move(other.layers));
  if (other.dialect != fp8::Format::kE4m3Fn) refuse_scales(place, other.dialect, type);
  return scales_as(type, type == KvDType::kFp8E4m3Fnuz ? doubled_for_fnuz(std::move(other.layers))
                                                       : std::move(other.layers));
}

std::vector<LayerKvScales> scales_of_checkpoint(const CacheOptions& options,
                                                const LoadedModel& model, const CacheType& type) {
  auto scales = read_checkpoint_scales(model.model_dir, model.config, options.skip_layers);
  if (!scales)
    fail(model.path, ": has no KV scales for a ", name_of(type),
         " cache; calibrate it, name a file or folder with --scales, or ask for scale 1.0 with "
         "--unit-scales");
  check_strategy(model.quantization.kv, *scales, model.config);
  const KvFormat format = model.quantization.kv.format();
  if (format.is_int8()) return from_int8(type, *std::move(scales), model.config);
  if (format == fp8::Format::kE5m2 && type != KvDType::kFp8E5m2)
    refuse_scales(model.path, format, type);
  const bool is_doubled = type == KvDType::kFp8E4m3Fnuz && format == fp8::Format::kE4m3Fn;
  return scales_as(type, is_doubled ? doubled_for_fnuz(*std::move(scales)) : *std::move(scales));
}

/// Scales of all layers, those of skip_layers among them where they have any.
std::vector<LayerKvScales> scales_of_all(const CacheOptions& options, const LoadedModel& model,
                                         const CacheType& type) {
  if (!needs_scales(type))
    return std::vector<LayerKvScales>(static_cast<size_t>(model.config.num_hidden_layers));
  if (options.unit_scales) return unit_scales(model.config);
  return options.scales.empty() ? scales_of_checkpoint(options, model, type)
                                : scales_of_place(options.scales, model.config, type);
}

constexpr float kWeightScale = 1.0f / 256.0f;

/// Of scales of queries, the largest of each KV head for all of its attention heads.
void tie_groups(std::vector<Scale>& q, int64_t kv_heads) {
  const size_t group = q.size() / static_cast<size_t>(kv_heads);
  for (size_t first = 0; group > 1 && first + group <= q.size(); first += group) {
    const auto begin = q.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(group);
    std::fill(begin, end,
              *std::max_element(begin, end, [](Scale a, Scale b) { return a.value < b.value; }));
  }
}

}  // namespace

void check(const CacheOptions& options) {
  if (options.unit_scales && !options.scales.empty())
    fail_usage("--unit-scales and --scales exclude each other");
}

LoadedModel::LoadedModel(const std::string& given_path, const DeviceOptions& device,
                         bool has_tokenizer, Diagnostics& diagnostics, Backend* shared,
                         const FamilyChoice& family)
    : path(given_path),
      model_dir(path),
      config(read_model_config(model_dir, family)),
      quantization(read_checkpoint_quantization(model_dir, config)),
      weights(in_context(path,
                         [&] {
                           Weights all(model_dir, config, &quantization);
                           all.check_head();
                           return all;
                         })),
      tokenizer(has_tokenizer ? make_tokenizer(model_dir.path()) : nullptr),
      own_backend(shared ? nullptr : open_backend(device, diagnostics)),
      backend(shared ? *shared : *own_backend),
      decoder(config, weights, backend, compute_type_of(device, backend, config)) {
  settle_inputs(device, quantization);
  for (const std::string& warning : quantization.warnings) diagnostics.warn(path + ": " + warning);
}

std::optional<uint64_t> cache_memory(const Backend& backend) {
  const auto free = backend.is_host() ? available_memory() : backend.free_memory();
  return free ? std::optional(*free / 2) : std::nullopt;
}

CacheType cache_type_of(const CacheOptions& options, const LoadedModel& model,
                        Diagnostics& diagnostics) {
  if (options.kv_cache_dtype != "auto")
    return in_context("--kv-cache-dtype", [&] { return parse_cache_type(options.kv_cache_dtype); });
  if (!options.scales.empty())
    return cache_type_of(read_scales_of(options.scales, model.config).dialect);
  const bool has_scales =
      read_checkpoint_scales(model.model_dir, model.config, options.skip_layers).has_value();
  const KvScheme& scheme = model.quantization.kv;
  if (!options.unit_scales && scheme.cache == KvScheme::Cache::kNvfp4) {
    if (!has_scales) fail_without_scales(scheme, "NVFP4");
    return CacheFormat::kNvfp4;
  }
  if (!options.unit_scales && scheme.cache == KvScheme::Cache::kInt8) {
    if (!has_scales) fail_without_scales(scheme, "INT8");
    return CacheFormat::kInt8;
  }
  if (!options.unit_scales && !is_fp8_cache(model.quantization.kv, has_scales, diagnostics))
    return unquantized_cache_dtype(model.config);
  return cache_type_of(model.quantization.kv.dialect.value_or(fp8::Format::kE4m3Fn));
}

std::vector<LayerKvScales> with_joined_heads(std::vector<LayerKvScales> layers) {
  for (LayerKvScales& layer : layers)
    for (std::vector<Scale>* scales : {&layer.k, &layer.v})
      if (!scales->empty()) *scales = {*std::ranges::max_element(*scales, {}, &Scale::value)};
  return layers;
}

std::vector<LayerKvScales> scales_as(const CacheType& type, std::vector<LayerKvScales> layers,
                                     const KvFormat& made_for) {
  const bool is_int8 = made_for.is_int8();
  if (is_int8 ? type == CacheFormat::kInt8 : !type.format) return layers;
  const float made = made_for.largest_code();
  const float largest =
      type.format ? layout_of(*type.format).largest : fp8::max_value(fp8_format(type.dtype));
  if (type.format) layers = with_joined_heads(std::move(layers));
  for (LayerKvScales& layer : layers) {
    layer.q.clear();
    if (largest == made) continue;
    for (std::vector<Scale>* scales : {&layer.k, &layer.v})
      for (Scale& scale : *scales) scale.value = scale.value * made / largest;
  }
  return layers;
}

void leave_plain(std::vector<LayerKvScales>& scales, const CacheType& type,
                 const ModelConfig& config) {
  for (const int64_t layer : with_readers(plain_layers(type, config), config))
    scales.at(static_cast<size_t>(layer)) = {.ignored = true};
}

std::vector<LayerKvScales> scales_of(const CacheOptions& options, const LoadedModel& model,
                                     const CacheType& type, Diagnostics& diagnostics) {
  if (!is_quantized(type)) return {};
  const std::vector<int64_t> skipped = in_context("--kv-cache-dtype-skip-layers", [&] {
    return with_readers(options.skip_layers, model.config);
  });
  std::vector<LayerKvScales> scales = scales_of_all(options, model, type);
  for (const int64_t layer : skipped) scales.at(static_cast<size_t>(layer)) = {.ignored = true};
  note_ignored(scales, model.config, diagnostics);
  leave_plain(scales, type, model.config);
  return scales;
}

std::vector<LayerKvScales> with_fp8_attention(std::vector<LayerKvScales> scales,
                                              const CacheType& type, const ModelConfig& config) {
  if (type != KvDType::kFp8E4m3)
    fail("FP8 attention needs an fp8_e4m3 cache, this one is ", name_of(type));
  if (config.architecture->has_latent_attention)
    fail("the model keeps a latent (MLA), whose FP8 attention is not simulated");
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    LayerKvScales& own = scales[layer];
    if (own.ignored || !config.has_attention(static_cast<int64_t>(layer))) continue;
    if (own.q.empty()) own.q = {Scale{1.0f}};
    tie_groups(own.q, config.attention(static_cast<int64_t>(layer)).kv_heads);
    own.weights = Scale{kWeightScale};
  }
  return scales;
}

}  // namespace kvcal
