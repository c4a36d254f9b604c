#include "run/loaded_model.h"

#include <utility>

#include "convert/source_scales.h"
#include "core/number_text.h"
#include "core/process_memory.h"
#include "recipe/recipe.h"
#include "stored/dialect.h"
#include "stored/kv_scales.h"

namespace kvcal {

void check(const CacheOptions& options) {
  if (options.unit_scales && !options.scales.empty())
    fail("--unit-scales and --scales exclude each other");
}

LoadedModel::LoadedModel(const std::string& given_path, const DeviceOptions& device,
                         bool has_tokenizer, Diagnostics& diagnostics, Backend* shared,
                         const FamilyChoice& family)
    : path(given_path),
      model_dir(path),
      config(read_model_config(model_dir, family)),
      quantization(read_checkpoint_quantization(model_dir, config, matches_target)),
      weights(in_context(path, [&] { return Weights(model_dir, config, &quantization); })),
      tokenizer(has_tokenizer ? make_tokenizer(model_dir.path()) : nullptr),
      own_backend(shared ? nullptr : open_backend(device)),
      backend(shared ? *shared : *own_backend),
      decoder(config, weights, backend, compute_type_of(device, backend, config)) {
  settle_inputs(device, quantization);
  for (const std::string& warning : quantization.warnings) diagnostics.warn(path + ": " + warning);
}

std::optional<uint64_t> cache_memory(const Backend& backend) {
  const auto free = backend.is_host() ? available_memory() : backend.free_memory();
  return free ? std::optional(*free / 2) : std::nullopt;
}

namespace {

/// Whether config and scales together request FP8. Throws Error where an engine would silently run
/// FP8 with scale 1.0, or would not run: the user must choose.
bool is_fp8_cache(const KvScheme& scheme, bool has_scales, Diagnostics& diagnostics) {
  constexpr const char* kChoose =
      "choose the cache with --kv-cache-dtype, or scale 1.0 with --unit-scales";
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
      if (!has_scales)
        fail(scheme.where,
             " says that the cache is FP8, and no layer has scales, for which engines "
             "take 1.0; ",
             kChoose);
      return true;
    case KvScheme::Cache::kOther:
      fail(scheme.where, ": ", scheme.problem, "; ", kChoose);
  }
  return false;
}

}  // namespace

KvDType cache_dtype_of(const CacheOptions& options, const LoadedModel& model,
                       Diagnostics& diagnostics) {
  if (options.kv_cache_dtype != "auto")
    return in_context("--kv-cache-dtype", [&] { return parse_kv_dtype(options.kv_cache_dtype); });
  if (!options.scales.empty())
    return cache_dtype_of(read_scales_of(options.scales, model.config).format);
  const bool has_scales = read_checkpoint_scales(model.model_dir, model.config).has_value();
  if (!options.unit_scales && !is_fp8_cache(model.quantization.kv, has_scales, diagnostics))
    return unquantized_cache_dtype(model.config);
  return cache_dtype_of(model.quantization.kv.dialect.value_or(fp8::Format::kE4m3Fn));
}

namespace {

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

[[noreturn]] void refuse_scales(const std::string& place, fp8::Format format, KvDType dtype) {
  fail(place, ": holds scales of ", fp8::name_of(format), ", the cache is ", name_of(dtype));
}

/// Scales from a place, checked against the cache. Scales of E5M2, whose largest value is 57344,
/// would clip almost everything in another cache, and those of FNUZ are twice as large. The reverse
/// clips nothing, and engines do it.
std::vector<LayerKvScales> scales_of_place(const std::string& place, const ModelConfig& config,
                                           KvDType dtype) {
  SourceScales other = read_scales_of(place, config);
  if (other.format == fp8_format(dtype)) return std::move(other.layers);
  if (other.format != fp8::Format::kE4m3Fn) refuse_scales(place, other.format, dtype);
  return dtype == KvDType::kFp8E4m3Fnuz ? doubled_for_fnuz(std::move(other.layers))
                                        : std::move(other.layers);
}

std::vector<LayerKvScales> scales_of_checkpoint(const LoadedModel& model, KvDType dtype) {
  auto scales = read_checkpoint_scales(model.model_dir, model.config);
  if (!scales)
    fail(model.path, ": has no KV scales for a ", name_of(dtype),
         " cache; calibrate it, name a file or folder with --scales, or ask for scale 1.0 with "
         "--unit-scales");
  check_strategy(model.quantization.kv, *scales, model.config);
  const fp8::Format format = model.quantization.kv.dialect.value_or(fp8::Format::kE4m3Fn);
  if (format == fp8::Format::kE5m2 && dtype != KvDType::kFp8E5m2)
    refuse_scales(model.path, format, dtype);
  return dtype == KvDType::kFp8E4m3Fnuz && format == fp8::Format::kE4m3Fn
             ? doubled_for_fnuz(*std::move(scales))
             : *std::move(scales);
}

}  // namespace

std::vector<LayerKvScales> scales_of(const CacheOptions& options, const LoadedModel& model,
                                     KvDType dtype, Diagnostics& diagnostics) {
  if (!is_fp8(dtype)) return {};
  if (options.unit_scales) return unit_scales(model.config);
  auto scales = options.scales.empty() ? scales_of_checkpoint(model, dtype)
                                       : scales_of_place(options.scales, model.config, dtype);
  note_ignored(scales, model.config, diagnostics);
  return scales;
}

}  // namespace kvcal
