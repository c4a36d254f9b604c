#include "run/eval_variants.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/usage_error.h"
#include "forward/engine_cache.h"
#include "forward/kv_cache.h"
#include "stored/kv_scales.h"

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

/// Whether engines can keep all of the model's K and V in the format.
bool fits(CacheFormat format, const ModelConfig& config) {
  return std::ranges::all_of(config.cached_layers(), [&](int64_t layer) {
    return head_problem(format, config, layer).empty();
  });
}

bool has_heads(const LayerKvScales& layer) {
  return layer.k.size() > 1 || layer.v.size() > 1;
}

std::vector<Scale> scales_of_heads(const KvTensorCalibration& side,
                                   const Calibration& calibration) {
  if (resolved_strategy(calibration.kv_args) == Strategy::kAttnHead) return side.scales;
  std::vector<Scale> heads;
  for (const Range& range : side.head_ranges)
    heads.push_back(scale_from(Amax{range.amax().value * static_cast<float>(calibration.headroom)},
                               calibration.kv_format));
  return heads;
}

std::vector<ScoredSequence> sequences_of(const EvalOptions& options, const LoadedModel& model,
                                         Diagnostics& diagnostics) {
  return read_sequences(options.dataset, model.model_dir.path(), model.config.vocab_size,
                        options.sequences, diagnostics);
}

bool has_scores(const ScoredSequence& sequence) {
  return std::ssize(sequence.ids) > 1;
}

void check_sequences(const EvalOptions& options, const LoadedModel& model,
                     const std::vector<ScoredSequence>& sequences, Diagnostics& diagnostics) {
  if (std::ranges::none_of(sequences, has_scores))
    fail(options.dataset, ": no token to score: a sequence needs two or more");
  const int64_t most = model.config.max_position_embeddings;
  const auto longer = std::ranges::count_if(
      sequences, [&](const auto& one) { return std::ssize(one.ids) - 1 > most; });
  if (longer > 0)
    diagnostics.warn(counted(longer, "sequence") + (longer == 1 ? " is" : " are") +
                     " longer than the " + std::to_string(most) +
                     " positions the model was made for; cut them with "
                     "--max-seq-length");
}

/// score(sequence) for each sequence, with progress in tokens.
template <class Score>
std::vector<SequenceScores> score_each(const std::vector<ScoredSequence>& sequences,
                                       const char* stage, Diagnostics& diagnostics,
                                       const Score& score) {
  int64_t done = 0, total = 0;
  for (const ScoredSequence& sequence : sequences) total += std::ssize(sequence.ids);
  std::vector<SequenceScores> scores;
  for (const ScoredSequence& sequence : sequences) {
    scores.push_back(in_context(sequence.place, [&] { return score(sequence); }));
    done += std::ssize(sequence.ids);
    diagnostics.progress(stage, done, total, "tokens");
  }
  return scores;
}

}  // namespace

Json cache_json(const CacheLabel& cache) {
  Json json = {{"kv_cache_dtype", name_of(cache.type)},
               {"scales", cache.scales_source},
               {"bytes_per_token", cache.bytes_per_token}};
  if (cache.fp8_attention) json["fp8_attention"] = true;
  return json;
}

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
    fail_usage("--variant is '", text,
               "', expected NAME=CACHE[+attention][:SCALES] or NAME=model:FOLDER, such as "
               "unit=fp8_e4m3:unit");
  VariantSpec spec{.name = text.substr(0, equals)};
  const std::string value = text.substr(equals + 1);
  const size_t colon = value.find(':');
  std::string cache = value.substr(0, colon);
  constexpr std::string_view kAttention = "+attention";
  spec.cache.fp8_attention = cache.ends_with(kAttention);
  if (spec.cache.fp8_attention) cache.resize(cache.size() - kAttention.size());
  const std::string source = colon == std::string::npos ? "" : value.substr(colon + 1);
  if (colon != std::string::npos && source.empty())
    fail_usage("--variant ", text, ": nothing stands behind the colon");
  if (cache == "model") {
    if (source.empty())
      fail_usage("--variant ", text, ": expected a folder, as in ", cache, ":FOLDER");
    spec.folder = source;
    return spec;
  }
  if (cache != "auto") {
    const CacheType type = in_context("--variant " + text, [&] { return parse_cache_type(cache); });
    if (!needs_scales(type) && !source.empty())
      fail_usage("--variant ", text, ": a ", cache, " cache has no ",
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
    fail_usage(
        "--variant says which caches are scored; --kv-cache-dtype, --scales, --unit-scales and "
        "--fp8-attention are for a single one");
  if (!options.variants.empty() && options.every_cache)
    fail_usage("--variant and --every-cache both say which caches are scored");
  std::vector<VariantSpec> specs;
  std::set<std::string> names;
  for (const std::string& text : options.variants) {
    specs.push_back(parse_variant(text));
    if (!names.insert(specs.back().name).second)
      fail_usage("--variant ", text, ": the name '", specs.back().name, "' is given twice");
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
      variants_.emplace_back(spec.name, own, type,
                             scales_as(type, spec.scales->layers, spec.scales->made_for),
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
    return "the same model with an unquantized cache";
  return "the same with a " + std::string(name_of(label.type)) + " cache";
}

Scorer EvalVariants::make_scorer() const {
  std::vector<ScoredModel> models;
  for (const EvalVariant& variant : variants_) models.push_back(variant.scored());
  std::optional<ScoredModel> reference;
  if (reference_) reference.emplace(reference_->scored());
  return Scorer(std::move(models), reference, threads_);
}

std::vector<Likelihood> EvalVariants::score_scales(
    const std::vector<std::vector<LayerKvScales>>& scales,
    const std::vector<ScoredSequence>& sequences, Diagnostics& diagnostics) const {
  std::vector<ScoredModel> models;
  for (const auto& one : scales)
    models.push_back({variants_[0].model->decoder, variants_[0].label.type, one});
  Scorer scorer(models, reference_->scored(), threads_);
  const std::vector<SequenceScores> scores = score_all(scorer, sequences, diagnostics);
  std::vector<Likelihood> results;
  for (size_t i = 0; i < scales.size(); ++i) results.push_back(summarize(scores, i));
  return results;
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

void add_missed(const std::vector<Gate>& gates, const EvalVariants& variants, size_t variant,
                std::vector<std::string>& all) {
  const std::string name =
      variants.is_single() ? "" : variants.variants()[variant].label.name + ": ";
  for (const Gate& gate : gates)
    if (!gate.passed) all.push_back(name + missed_text(gate));
}

CalibratedScales calibrated_scales_of(const Calibration& calibration) {
  const auto count = static_cast<size_t>(calibration.num_hidden_layers);
  const LayerKvScales none{.ignored = true};
  CalibratedScales scales{.layers = std::vector<LayerKvScales>(count, none),
                          .heads = std::vector<LayerKvScales>(count, none),
                          .source = "calibrated",
                          .made_for = calibration.kv_format};
  const bool has_channels = resolved_strategy(calibration.kv_args) == Strategy::kChannel;
  if (has_channels) scales.channels = scales.layers;
  for (const AttentionCalibration& one : calibration.layers) {
    const auto layer = static_cast<size_t>(one.layer);
    if (one.ignored || layer >= count) continue;
    scales.layers[layer] = {.k = one.k.scales, .v = one.v.scales};
    if (has_channels) scales.channels[layer] = scales.layers[layer];
    scales.heads[layer] = {.k = scales_of_heads(one.k, calibration),
                           .v = scales_of_heads(one.v, calibration)};
  }
  scales.layers = with_joined_heads(std::move(scales.layers));
  return scales;
}

std::vector<VariantSpec> every_cache(const ModelConfig& config,
                                     const CalibratedScales& calibrated) {
  std::vector<VariantSpec> specs;
  const auto add = [&](const std::string& name, const CacheType& type) -> VariantSpec& {
    const CacheOptions cache{.kv_cache_dtype = std::string(name_of(type))};
    return specs.emplace_back(VariantSpec{.name = name, .cache = cache});
  };
  const auto add_unit = [&](const std::string& name, const CacheType& type) {
    add(name, type).cache.unit_scales = true;
  };
  const auto add_calibrated = [&](const std::string& name, const CacheType& type,
                                  const std::vector<LayerKvScales>& scales) {
    if (!scales.empty()) add(name, type).scales = {scales, calibrated.source, calibrated.made_for};
  };
  add_unit("fp8, 1.0", KvDType::kFp8E4m3);
  add_calibrated("fp8, by layer", KvDType::kFp8E4m3, calibrated.layers);
  add_calibrated("fp8, by head", KvDType::kFp8E4m3, calibrated.heads);
  add_unit("fp8_e5m2", KvDType::kFp8E5m2);
  for (const CacheFormat format : kCacheFormats) {
    if (!fits(format, config)) continue;
    const std::string name(name_of(format));
    if (!layout_of(format).needs_scales) {
      add(name, format);
      continue;
    }
    // INT8 codes of scale 1.0 would be K and V rounded to integers.
    if (format != CacheFormat::kInt8) add_unit(name + ", 1.0", format);
    add_calibrated(name + ", by layer", format, calibrated.layers);
    if (format != CacheFormat::kInt8 || !calibrated.made_for.is_int8()) continue;
    add_calibrated(name + ", by head", format, calibrated.heads);
    add_calibrated(name + ", by channel", format, calibrated.channels);
  }
  return specs;
}

std::vector<VariantSpec> every_cache(const ModelConfig& config, const Calibration& calibration) {
  const KvFormat& format = calibration.kv_format;
  const bool serves_all = format == fp8::Format::kE4m3Fn || format.is_int8();
  return every_cache(config, serves_all ? calibrated_scales_of(calibration) : CalibratedScales());
}

std::vector<VariantSpec> every_cache(const LoadedModel& model, const CacheOptions& cache,
                                     Diagnostics& diagnostics) {
  const std::string single = cache.unit_scales                ? "--unit-scales"
                             : cache.fp8_attention            ? "--fp8-attention"
                             : cache.kv_cache_dtype != "auto" ? "--kv-cache-dtype"
                                                              : "";
  if (!single.empty())
    fail_usage(
        "--every-cache scores all types of cache, with scale 1.0 and with calibrated scales; ",
        single, " is for a single one");
  CalibratedScales calibrated;
  calibrated.source = cache.scales.empty() ? "checkpoint" : cache.scales;
  if (!cache.scales.empty() || read_checkpoint_scales(model.model_dir, model.config)) {
    const auto scales = scales_of(cache, model, KvDType::kFp8E4m3, diagnostics);
    if (std::ranges::any_of(scales, has_heads)) calibrated.heads = scales;
    calibrated.layers = with_joined_heads(scales);
  }
  return every_cache(model.config, calibrated);
}

std::vector<ScoredSequence> read_sequences(const EvalOptions& options, const LoadedModel& model,
                                           Diagnostics& diagnostics) {
  std::vector<ScoredSequence> sequences = sequences_of(options, model, diagnostics);
  check_sequences(options, model, sequences, diagnostics);
  return sequences;
}

std::vector<ScoredSequence> read_left_sequences(EvalOptions& options, const LoadedModel& model,
                                                Diagnostics& diagnostics) {
  std::vector<ScoredSequence> sequences = sequences_of(options, model, diagnostics);
  if (std::ranges::none_of(sequences, has_scores)) {
    options.sequences.num_skipped = 0;
    return read_sequences(options, model, diagnostics);
  }
  check_sequences(options, model, sequences, diagnostics);
  return sequences;
}

std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics, const char* stage) {
  return score_each(sequences, stage, diagnostics, [&](const ScoredSequence& sequence) {
    return scorer.score(sequence.ids, sequence.first_scored);
  });
}

std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics) {
  return score_each(
      sequences, "eval, layer by layer", diagnostics, [&](const ScoredSequence& sequence) {
        return scorer.score_layers(sequence.ids, sequence.first_scored, model, layers);
      });
}

}  // namespace kvcal
