#include "convert/conversion.h"

#include <algorithm>
#include <cmath>

#include "calib/scales/derive.h"
#include "convert/output_model.h"
#include "convert/stored_weights.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// The scales that the conversion starts from. notes: gets a line where they replace the
/// checkpoint's own.
SourceScales read_scales(const ModelDir& model, const ModelConfig& config,
                         const ConversionOptions& options, std::vector<std::string>& notes) {
  read_dialect(model);  // refuses an unknown word also where other scales replace its own
  if (options.scales.empty())
    return options.own_scales ? *options.own_scales : read_scales_of_checkpoint(model, config);
  SourceScales source = read_scales_of(options.scales, config);
  if (find_kv_scale_format(scale_tensors_of(model), config))
    notes.push_back("the checkpoint's own KV scales are replaced by those of " + source.path);
  return source;
}

/// The quantized weights of a checkpoint that one of the formats writes anew. nullopt: none of them
/// is a checkpoint, or the weights are of a format that is kept and not read. Throws Error for
/// contradictions.
std::optional<CheckpointQuantization> read_weights(const ModelDir& model, const ModelConfig& config,
                                                   const std::vector<std::string>& formats,
                                                   std::vector<std::string>& warnings) {
  if (std::ranges::none_of(formats, [](const std::string& format) {
        return any_has(format, &OutputFormat::is_checkpoint);
      }))
    return std::nullopt;
  CheckpointQuantization weights;
  try {
    weights = read_checkpoint_quantization(model, config);
  } catch (const UnknownKey&) {
    throw;
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    // Where the weights change their format, this is an error (convert_weights).
    warnings.push_back("weights are kept as they are, and no command reads them: " +
                       error.message());
    return std::nullopt;
  }
  warnings.insert(warnings.end(), weights.warnings.begin(), weights.warnings.end());
  if (!weights.problems.empty()) fail(model.given_path().string(), ": ", weights.problems.front());
  check_described(model, config, weights);
  return weights;
}

/// Throws Error for FP8 weights whose scales nothing would write.
void check_all_are_read(const CheckpointQuantization& weights, const ModelDir& model,
                        const SourceQuantization& kept) {
  constexpr std::string_view kWeight = ".weight";
  for (const std::string& name : model.tensor_names())
    if (model.tensor(name).dtype == DType::kF8E4M3 && name.ends_with(kWeight) &&
        !weights.linears.contains(name.substr(0, name.size() - kWeight.size())))
      fail(model.given_path().string(), ": ", name,
           " is FP8 and no part of the text model: what its scales are is not read; such weights "
           "stay as they are where the output has the source's form, ",
           kept.format);
}

/// The weights as the output has them: unchanged where all formats keep them. Else FP8 weights are
/// apart from their scales, and other codes are, in model, as one of the formats stores them. read:
/// the result of read_weights.
ConvertedWeights convert_weights(ModelDir& model, const ModelConfig& config,
                                 std::optional<SourceQuantization> kept,
                                 const std::vector<std::string>& formats,
                                 std::optional<CheckpointQuantization> read,
                                 std::vector<std::string>& notes,
                                 std::vector<std::string>& warnings) {
  if (!kept || std::ranges::all_of(formats, [&](const std::string& format) {
        return keeps_weights(*kept, format);
      }))
    return {.kept = std::move(kept), .restored = {}, .recoded = {}};
  CheckpointQuantization weights =
      read ? *std::move(read) : read_checkpoint_quantization(model, config);
  if (!weights.problems.empty()) fail(model.given_path().string(), ": ", weights.problems.front());
  if (!weights.has_coded()) {
    check_all_are_read(weights, model, *kept);
    return {.kept = {}, .restored = std::move(weights), .recoded = {}};
  }
  const std::string target = recoding_target(*kept, formats);
  if (target.empty())
    fail(model.given_path().string(), ": has weights of ", kept->format, " (",
         weights.matrices.front()->codes().name,
         ") that are kept where the output has the same form, or scales-json",
         kWriters.find(kept->format) ? "" : "; compressed-tensors may hold the same codes");
  Recoded recoded = recode_weights(model, config, weights, kept->format, target);
  notes.push_back(std::move(recoded.note));
  if (!recoded.caveat.empty()) warnings.push_back(std::move(recoded.caveat));
  return {.kept = std::move(recoded.kept), .restored = {}, .recoded = std::move(weights)};
}

/// Whether all formats hold scales of queries, and the config of kept weights describes them.
bool hold_queries(const std::vector<std::string>& formats,
                  const std::optional<SourceQuantization>& kept) {
  const StoredFormat* stored = kept ? format_of_method(kept->format) : nullptr;
  return stored && stored->strip_queries &&
         std::ranges::all_of(formats, [](const std::string& format) {
           return any_has(format, &OutputFormat::holds_queries);
         });
}

/// Strategy of the output; nullopt: the source's. Ranks stay apart where kv_cache_scales.json is
/// the only format.
std::optional<Strategy> strategy_for(const SourceScales& source, const ModelConfig& config,
                                     const std::vector<std::string>& formats,
                                     std::optional<Strategy> wanted) {
  const size_t ranks = source.ranks.size();
  if (wanted || ranks < 2) return wanted;
  const bool keeps_ranks = std::ranges::all_of(formats, [](const std::string& format) {
    return std::ranges::all_of(joined_names(format), [](const std::string& name) {
      return kWriters.at(name).holds_ranks;
    });
  });
  const bool divides_all = std::ranges::all_of(config.layers, [&](const LayerConfig& layer) {
    const auto heads = static_cast<size_t>(layer.cache.heads);
    return !layer.has_attention || heads % ranks == 0 || ranks % heads == 0;
  });
  return keeps_ranks && divides_all ? std::optional(Strategy::kAttnHead) : std::nullopt;
}

/// The scales of each layer before merging: where the source has ranks, one a rank.
std::vector<LayerKvScales> unmerged(const SourceScales& source) {
  std::vector<LayerKvScales> layers = source.layers;
  if (source.ranks.empty()) return layers;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (std::vector<Scale>* side : {&layers[layer].k, &layers[layer].v}) {
      if (side->empty()) continue;
      side->clear();
      for (const std::vector<Scale>& rank : source.ranks) side->push_back(rank[layer]);
    }
  return layers;
}

/// Scale of each head: that of its rank, or the largest where several ranks hold it.
std::vector<Scale> spread_over_heads(const std::vector<Scale>& ranks, size_t heads) {
  if (heads % ranks.size() != 0 && ranks.size() % heads != 0)
    fail(ranks.size(), " ranks do not divide ", counted(heads, "KV head"));
  std::vector<Scale> all;
  for (size_t head = 0; head < heads; ++head) {
    const size_t first = head * ranks.size() / heads;
    const size_t end = std::max(first + 1, (head + 1) * ranks.size() / heads);
    all.push_back(largest_of({ranks.begin() + static_cast<std::ptrdiff_t>(first),
                              ranks.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
  return all;
}

/// The layers' scales with this strategy, kTensor or kAttnHead, from those before merging, which
/// channels are, too. path: of the scales, for messages.
std::vector<LayerKvScales> with_strategy(std::vector<LayerKvScales> layers,
                                         const std::vector<LayerKvScales>& own, Strategy strategy,
                                         const ModelConfig& config, const std::string& path) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].k.empty()) continue;
    const auto heads = static_cast<size_t>(config.cache(static_cast<int64_t>(layer)).heads);
    const auto merged = [&](const std::vector<Scale>& side) {
      return strategy == Strategy::kTensor
                 ? std::vector{largest_of(side)}
                 : in_context(path, [&] { return spread_over_heads(side, heads); });
    };
    layers[layer].k = merged(own[layer].k);
    layers[layer].v = merged(own[layer].v);
  }
  return layers;
}

/// Factor of scales in the output's dialect; 1: they stay.
float dialect_factor(const SourceScales& source, std::optional<fp8::Format> dialect) {
  if (!dialect || *dialect == source.dialect) return 1.0f;
  if (source.dialect == fp8::Format::kE5m2 || source.dialect.is_int8())
    fail(source.path, ": scales of ", source.dialect.is_int8() ? "INT8" : "E5M2",
         " have no other dialect, expected those of E4M3");
  // Each code has half the value in E4M3FNUZ.
  return *dialect == fp8::Format::kE4m3Fnuz ? 2.0f : 0.5f;
}

std::vector<LayerKvScales> times(std::vector<LayerKvScales> layers, float factor,
                                 const std::string& path) {
  for (LayerKvScales& layer : layers)
    for (std::vector<Scale>* side : {&layer.k, &layer.v, &layer.q})
      for (Scale& scale : *side) {
        const float value = scale.value * factor;
        if (!std::isnormal(value))
          fail(path, ": scale ", scale.value, " times ", factor, " is not a normal number");
        scale.value = value;
      }
  return layers;
}

/// Strategy of the output's cache. wanted: that of the options.
Strategy cache_strategy(const SourceScales& source, const ModelConfig& config,
                        std::optional<Strategy> wanted) {
  Strategy finest = Strategy::kTensor;
  for (size_t layer = 0; layer < source.layers.size(); ++layer) {
    const LayerKvScales& own = source.layers[layer];
    const int64_t heads = config.cache(static_cast<int64_t>(layer)).heads;
    const int64_t most = std::max(std::ssize(own.k), std::ssize(own.v));
    if (most > heads) return Strategy::kChannel;
    if (most > 1) finest = Strategy::kAttnHead;
  }
  // With one head there is one scale either way.
  const auto has_one_head = [](const LayerConfig& layer) { return layer.cache.heads == 1; };
  if (!std::ranges::all_of(config.layers, has_one_head) || source.layers.empty()) return finest;
  if (wanted) return *wanted;
  const bool says_heads =
      source.scheme.is_object() && source.scheme.value("strategy", Json()) == "attn_head";
  return says_heads ? Strategy::kAttnHead : finest;
}

/// Adds the layers' scales to a calibration that has the plan.
void add_layers(const SourceScales& source, const ModelConfig& config, Calibration& calibration) {
  for (size_t layer = 0; layer < source.layers.size(); ++layer) {
    const auto index = static_cast<int64_t>(layer);
    if (!config.has_attention(index)) continue;
    const LayerKvScales& scales = source.layers[layer];
    AttentionCalibration& own = calibration.layers.emplace_back();
    own.layer = index;
    own.module = config.attention_module(index);
    own.ignored = scales.ignored;
    own.reads_cache_of = read_cache(config, index);
    own.k.scales = scales.k;
    own.v.scales = scales.v;
    const Strategy strategy = resolved_strategy(calibration.kv_args);
    const LayerCache& cache = config.cache(index);
    if (!scales.ignored && strategy != Strategy::kTensor) {
      const bool has_channels = strategy == Strategy::kChannel;
      own.k.scales = spread_scales(scales.k, cache.heads * (has_channels ? cache.k_dim : 1));
      own.v.scales = spread_scales(scales.v, cache.heads * (has_channels ? cache.v_dim : 1));
    }
    if (scales.q.empty()) continue;
    own.q.emplace().scales = scales.q;
    const auto planned =
        std::ranges::find(calibration.plan.attention, own.module, &PlannedAttention::module);
    KVCAL_CHECK(planned != calibration.plan.attention.end());
    planned->q = calibration.kv_args;
    planned->q->strategy = scales.q.size() > 1 ? Strategy::kAttnHead : Strategy::kTensor;
  }
}

/// restored: the weights whose scales are the calibration's.
Calibration calibration_of(const SourceScales& source, const CheckpointQuantization& restored,
                           const ModelDir& model, const ModelConfig& config,
                           std::optional<Strategy> strategy, Diagnostics& diagnostics) {
  std::vector<std::string> ignored;
  for (size_t layer = 0; layer < source.layers.size(); ++layer)
    if (source.layers[layer].ignored)
      ignored.push_back(config.attention_module(static_cast<int64_t>(layer)));
  QuantPlan plan = in_context(model.given_path().string(), [&] {
    std::optional<QuantArgs> cache;
    if (!source.layers.empty())
      cache = cache_args(source.scheme, cache_strategy(source, config, strategy), source.dialect);
    if (!cache && restored.linears.empty()) return QuantPlan();
    return plan_of_modules(model, config, fp8_schemes(restored), cache, ignored, diagnostics);
  });
  take_observers(source.manifest, plan);
  // Of INT8 the dtype is not asked for: its plan says so.
  const CacheType type = cache_type_of(source.dialect);
  Calibration calibration =
      empty_calibration(plan, config, type.format ? KvDType::kFp8E4m3 : type.dtype);
  if (!member(source.scheme, "observer")) calibration.kv_args.observer.reset();
  add_stored_weights(restored, calibration);
  add_layers(source, config, calibration);
  return calibration;
}

/// Octaves lost by the scale of own that loses most.
double lost_octaves(const std::vector<Scale>& own, const std::vector<Scale>& held) {
  double most = 0.0;
  const size_t count = std::max(own.size(), held.size());
  for (size_t i = 0; i < count; ++i) {
    const float before = own[i * own.size() / count].value;
    const float after = held[i * held.size() / count].value;
    most = std::max(most, std::log2(static_cast<double>(after) / static_cast<double>(before)));
  }
  return most;
}

/// The source's entry of a module, or a new one without calibration data; with its marks, which
/// earlier versions did not write.
Json entry_of(const Json& layers, const AttentionCalibration& layer,
              const Calibration& calibration) {
  Json own = layer_marks(layer, calibration);
  if (layers.is_array())
    for (const Json& entry : layers)
      if (entry.is_object() && entry.value("module", Json()) == Json(layer.module)) {
        Json marked = entry;
        marked.update(own);
        return marked;
      }
  return own;
}

Json layers_json(const Calibration& calibration, const Json& source,
                 const WrittenFormats& formats) {
  Json layers = Json::array();
  for (const AttentionCalibration& layer : calibration.layers) {
    Json entry = entry_of(source, layer, calibration);
    // As one written format holds them; with several, those that all are made from.
    const WrittenScales scales = formats.writer && !layer.ignored
                                     ? formats.writer->held(layer, formats.tp_size)
                                     : WrittenScales{layer.k.scales, layer.v.scales};
    entry["k_scale"] = scales_json(scales.k, layer.ignored);
    entry["v_scale"] = scales_json(scales.v, layer.ignored);
    for (const char* key : {"q_scale", "q_amax", "q_head_amax", "q_saturated", "q_histogram"})
      if (!layer.q) entry.erase(key);
    if (const auto found = entry.find("convergence");
        !layer.q && found != entry.end() && found->is_object())
      for (const char* key : {"q_amax", "q_interval"}) found->erase(key);
    if (layer.q) entry["q_scale"] = scales_json(layer.q->scales, layer.ignored);
    layers.push_back(std::move(entry));
  }
  return layers;
}

/// Rounds to four decimals: the last digits of a logarithm differ between machines.
double rounded(double octaves) {
  return std::round(octaves * 1e4) / 1e4;
}

Json losses_json(const std::vector<FormatLosses>& losses) {
  Json all = Json::object();
  for (const FormatLosses& format : losses) {
    Json& layers = all[format.format] = Json::array();
    for (const LayerLoss& loss : format.layers)
      if (loss.k_octaves > 0.0 || loss.v_octaves > 0.0)
        layers.push_back({{"layer", loss.layer},
                          {"k_octaves", rounded(loss.k_octaves)},
                          {"v_octaves", rounded(loss.v_octaves)}});
  }
  return all;
}

}  // namespace

Conversion::Conversion(const std::filesystem::path& checkpoint,
                       const std::vector<std::string>& formats, const ConversionOptions& options,
                       Diagnostics& diagnostics)
    : model_(checkpoint), config_(read_model_config(model_, options.family)) {
  auto kept = read_kept_quantization(model_);
  source_ = read_scales(model_, config_, options, notes_);
  warnings_ = warnings_of(source_);
  auto read = read_weights(model_, config_, formats, warnings_);
  weights_ = convert_weights(model_, config_, std::move(kept), formats, std::move(read), notes_,
                             warnings_);
  if (source_.layers.empty() && weights_.restored.linears.empty() && !weights_.recoded.has_coded())
    fail(checkpoint.string(), ": has no KV scales",
         weights_.kept ? ", and its weights are in the wanted form already" : " and no FP8 weights",
         ": there is nothing to convert; give the scales with --scales");

  const bool has_queries = std::ranges::any_of(
      source_.layers, [](const LayerKvScales& layer) { return !layer.q.empty(); });
  const bool keeps_queries = has_queries && hold_queries(formats, weights_.kept);
  if (!keeps_queries) {
    for (LayerKvScales& layer : source_.layers) layer.q.clear();
    const bool are_described = strip_queries(weights_.kept);
    if (has_queries || are_described) notes_.emplace_back("scales of queries are not written");
  }
  own_ = unmerged(source_);
  if (const auto strategy = strategy_for(source_, config_, formats, options.strategy)) {
    source_.layers =
        with_strategy(std::move(source_.layers), own_, *strategy, config_, source_.path);
    if (keeps_queries)
      fail(model_.given_path().string(),
           ": quantizes queries too, whose scales have the cache's strategy; --strategy is not for "
           "it");
  }
  if (const float factor = dialect_factor(source_, options.dialect); factor != 1.0f) {
    source_.layers = times(std::move(source_.layers), factor, source_.path);
    own_ = times(std::move(own_), factor, source_.path);
    source_.dialect = *options.dialect;
    notes_.push_back(std::string("scales are ") + (factor == 2.0f ? "doubled" : "halved") +
                     ": a code of E4M3FNUZ stands for half the value that it has in E4M3FN");
  }
  calibration_ =
      calibration_of(source_, weights_.restored, model_, config_, options.strategy, diagnostics);
  strip_scales(model_, config_, weights_.restored.tensors);
}

ExportInput Conversion::input() const {
  return {.model = model_, .calibration = calibration_, .config = &config_, .kept = kept()};
}

std::vector<LayerLoss> losses_of(const Conversion& conversion, const Writer& writer,
                                 int64_t tp_size) {
  std::vector<LayerLoss> losses;
  for (const AttentionCalibration& layer : conversion.input().calibration.layers) {
    if (layer.ignored) continue;
    const LayerKvScales& own = conversion.own_scales(static_cast<size_t>(layer.layer));
    const WrittenScales held = writer.held(layer, tp_size);
    losses.push_back({.layer = layer.layer,
                      .k_scale = largest_of(own.k).value,
                      .v_scale = largest_of(own.v).value,
                      .k_written = largest_of(held.k).value,
                      .v_written = largest_of(held.v).value,
                      .k_octaves = lost_octaves(own.k, held.k),
                      .v_octaves = lost_octaves(own.v, held.v)});
  }
  return losses;
}

Json conversion_manifest(const Conversion& conversion, const std::string& version,
                         const WrittenFormats& formats) {
  const SourceScales& source = conversion.source();
  const Calibration& calibration = conversion.input().calibration;
  Json manifest = source.manifest.is_object() ? source.manifest : Json::object();
  manifest["kvcal_version"] = version;
  manifest["created_by"] = "kvcal " + version;
  if (!manifest.contains("recipe") || !manifest["recipe"].is_object())
    manifest["recipe"] = Json::object();
  manifest["recipe"]["kv_cache_scheme"] =
      calibration.layers.empty() ? Json() : to_json(calibration.kv_args);
  manifest.erase("summary");  // of the source's scales
  const Json before = manifest.value("layers", Json());
  manifest["layers"] = layers_json(calibration, before, formats);
  manifest["conversion"] = {{"form", source.format.empty() ? Json() : Json(source.format)},
                            {"scales", source.path},
                            {"keys_observed", name_of(source.keys)},
                            {"kv_cache_dtype", name_of(source.dialect)},
                            {"lost", losses_json(formats.losses)}};
  if (const ModelConfig& config = conversion.config(); config.chosen) {
    manifest["conversion"]["family"] = config.architecture->name;
    if (config.chosen.is_from_file())
      manifest["conversion"]["family_sha256"] = config.chosen.file_sha256;
  }
  return manifest;
}

}  // namespace kvcal
