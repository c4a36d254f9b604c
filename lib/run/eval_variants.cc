#include "run/eval_variants.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "run/every_cache.h"
#include "run/fp8_attention.h"

namespace kvcal {
namespace {

std::string source_of(const CacheOptions& cache, const CacheType& type) {
  if (!is_quantized(type)) return "none";
  if (!needs_scales(type)) return "dynamic";
  if (cache.unit_scales) return "unit";
  return cache.scales.empty() ? "checkpoint" : cache.scales;
}

bool is_named(const CacheOptions& cache) {
  return cache.kv_cache_dtype != "auto" || !cache.scales.empty() || cache.unit_scales ||
         cache.fp8_attention;
}

}  // namespace

EvalVariant::EvalVariant(const std::string& name, LoadedModel& loaded, const CacheType& type,
                         std::vector<LayerKvScales> given, std::string source)
    : label{name, type, std::move(source)}, model(&loaded), scales(std::move(given)) {
  if (name.empty()) label.name = name_of(type);
  label.bytes_per_token = KvCache::bytes_per_token(loaded.config, type, scales);
}

EvalVariant::EvalVariant(const std::string& name, LoadedModel& loaded, const CacheOptions& cache,
                         Diagnostics& diagnostics) {
  const CacheType type = cache_type_of(cache, loaded, diagnostics);
  auto given = scales_of(cache, loaded, type, diagnostics);
  if (cache.fp8_attention) given = with_fp8_attention(std::move(given), type, loaded.config);
  *this = EvalVariant(name, loaded, type, std::move(given), source_of(cache, type));
  label.fp8_attention = cache.fp8_attention;
}

std::vector<int64_t> EvalVariant::quantized_layers() const {
  std::vector<int64_t> layers;
  for (const int64_t layer : model->config.cached_layers())
    if (!scales[static_cast<size_t>(layer)].ignored) layers.push_back(layer);
  return layers;
}

VariantSpec parse_variant(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    fail("--variant is '", text,
         "', expected NAME=CACHE[+attention][:SCALES] or NAME=model:FOLDER, such as "
         "unit=fp8_e4m3:unit");
  VariantSpec spec{.name = text.substr(0, equals), .folder = {}, .cache = {}};
  const std::string value = text.substr(equals + 1);
  const size_t colon = value.find(':');
  std::string cache = value.substr(0, colon);
  constexpr std::string_view kAttention = "+attention";
  spec.cache.fp8_attention = cache.ends_with(kAttention);
  if (spec.cache.fp8_attention) cache.resize(cache.size() - kAttention.size());
  const std::string source = colon == std::string::npos ? "" : value.substr(colon + 1);
  if (colon != std::string::npos && source.empty())
    fail("--variant ", text, ": nothing stands behind the colon");
  if (cache == "model") {
    if (source.empty()) fail("--variant ", text, ": expected a folder, as in ", cache, ":FOLDER");
    spec.folder = source;
    return spec;
  }
  if (cache != "auto") {
    const CacheType type = in_context("--variant " + text, [&] { return parse_cache_type(cache); });
    if (!needs_scales(type) && !source.empty())
      fail("--variant ", text, ": a ", cache, " cache has no ",
           is_quantized(type) ? "scales but those that it makes for each token" : "scales");
  }
  spec.cache.kv_cache_dtype = cache;
  spec.cache.unit_scales = source == "unit";
  if (source != "unit" && source != "checkpoint") spec.cache.scales = source;
  return spec;
}

EvalVariants::EvalVariants(const EvalOptions& options, bool has_reference, Diagnostics& diagnostics)
    : backend_(open_backend(options.device, diagnostics)), threads_(options.device.threads) {
  check(options.cache);
  if (!options.variants.empty() && is_named(options.cache))
    fail(
        "--variant says which caches are scored; --kv-cache-dtype, --scales, --unit-scales and "
        "--fp8-attention are for a single one");
  if (!options.variants.empty() && options.every_cache)
    fail("--variant and --every-cache both say which caches are scored");
  std::vector<VariantSpec> specs;
  std::set<std::string> names;
  for (const std::string& text : options.variants) {
    specs.push_back(parse_variant(text));
    if (!names.insert(specs.back().name).second)
      fail("--variant ", text, ": the name '", specs.back().name, "' is given twice");
  }
  specs.insert(specs.end(), options.more_variants.begin(), options.more_variants.end());
  LoadedModel& model = load(options.model, options, diagnostics);
  if (options.every_cache) specs = every_cache(model, options.cache, diagnostics);
  is_single_ = specs.empty();
  for (const VariantSpec& spec : specs)
    in_context("--variant " + spec.name, [&] {
      LoadedModel& own = spec.folder.empty() ? model : load(spec.folder, options, diagnostics);
      if (!spec.scales) {
        CacheOptions cache = spec.cache;
        cache.skip_layers = options.cache.skip_layers;
        variants_.emplace_back(spec.name, own, cache, diagnostics);
        return;
      }
      const CacheType type = parse_cache_type(spec.cache.kv_cache_dtype);
      variants_.emplace_back(spec.name, own, type, scales_as(type, spec.scales->layers),
                             spec.scales->source);
    });
  if (is_single_) variants_.emplace_back("", model, options.cache, diagnostics);
  if (!has_reference) return;
  LoadedModel& from =
      options.reference.empty() ? model : load(options.reference, options, diagnostics);
  // Another model runs by its own config; the same model with its cache before FP8.
  CacheOptions cache;
  cache.kv_cache_dtype = options.reference_cache;
  if (&from == &model && options.reference_cache == "auto")
    cache.kv_cache_dtype = name_of(unquantized_cache_dtype(model.config));
  reference_.emplace(options.reference, from, cache, diagnostics);
}

LoadedModel& EvalVariants::load(const std::string& folder, const EvalOptions& options,
                                Diagnostics& diagnostics) {
  const auto same = std::ranges::find_if(
      models_, [&](const auto& model) { return resolved(model->path) == resolved(folder); });
  if (same != models_.end()) return **same;
  models_.push_back(std::make_unique<LoadedModel>(folder, options.device, false, diagnostics,
                                                  backend_.get(), options.family));
  return *models_.back();
}

std::string EvalVariants::reference_name() const {
  if (!reference_) return "";
  const CacheLabel& label = reference_->label;
  if (reference_->model != models_[0].get()) return label.name;
  if (label.type == unquantized_cache_dtype(reference_->model->config))
    return "the same with an unquantized cache";
  return "the same with a " + std::string(name_of(label.type)) + " cache";
}

Scorer EvalVariants::make_scorer() const {
  std::vector<ScoredModel> models;
  for (const EvalVariant& variant : variants_) models.push_back(variant.scored());
  std::optional<ScoredModel> reference;
  if (reference_) reference.emplace(reference_->scored());
  return Scorer(std::move(models), reference, threads_);
}

void check_gated(const EvalVariants& variants, const EvalOptions& options) {
  const auto quantizes = [](const EvalVariant& variant) {
    const CheckpointQuantization& weights = variant.model->quantization;
    return is_quantized(variant.label.type) || !weights.linears.empty() || weights.has_coded();
  };
  if (options.allow_16_bit || std::ranges::any_of(variants.variants(), quantizes)) return;
  fail(options.model, ": a gate would pass whatever happens: the cache is ",
       name_of(variants.variants().front().label.type),
       " and no weight is quantized; give a checkpoint with scales, --kv-cache-dtype fp8_e4m3, or "
       "--allow-16-bit where 16 bits are meant");
}

void add_missed(const std::vector<std::string>& lines, const EvalVariants& variants, size_t variant,
                std::vector<std::string>& all) {
  const std::string name =
      variants.is_single() ? "" : variants.variants()[variant].label.name + ": ";
  for (const std::string& line : lines) all.push_back(name + line);
}

}  // namespace kvcal
