#include "convert/conversion.h"

#include <algorithm>
#include <cmath>

#include "calib/derive.h"
#include "convert/kept_quantization.h"
#include "convert/output_model.h"
#include "convert/recoded_weights.h"
#include "convert/stored_weights.h"
#include "export/joined_writer.h"
#include "export/layer_scales.h"
#include "stored/dialect.h"
#include "stored/fp8_checkpoint.h"
#include "stored/json_member.h"
#include "stored/stored_form.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

void each_side(LayerKvScales& layer, const auto& act) {
  act(layer.k);
  act(layer.v);
}

/// Scale of each head: that of its rank, or the largest where several ranks hold it.
std::vector<Scale> spread_over_heads(const std::vector<Scale>& ranks, size_t heads) {
  if (heads % ranks.size() != 0 && ranks.size() % heads != 0)
    fail(ranks.size(), " ranks do not divide ", heads, " KV heads");
  std::vector<Scale> all;
  for (size_t head = 0; head < heads; ++head) {
    const size_t first = head * ranks.size() / heads;
    const size_t last = std::max(first + 1, (head + 1) * ranks.size() / heads);
    all.push_back(
        *std::max_element(ranks.begin() + static_cast<std::ptrdiff_t>(first),
                          ranks.begin() + static_cast<std::ptrdiff_t>(last),
                          [](const Scale& a, const Scale& b) { return a.value < b.value; }));
  }
  return all;
}

/// Form of kept weights whose config may have scales of queries; nullptr: none.
const StoredForm* form_with_queries(const std::optional<KeptQuantization>& kept) {
  const StoredForm* form = kept ? form_of_method(kept->format) : nullptr;
  return form && form->strip_queries ? form : nullptr;
}

}  // namespace

Conversion::Conversion(const std::filesystem::path& checkpoint,
                       const std::vector<std::string>& formats, const ConversionOptions& options,
                       Diagnostics& diagnostics)
    : model_(checkpoint),
      config_(read_model_config(model_, options.family)),
      kept_(read_kept_quantization(model_)) {
  read_scales(options);
  settle_weights(formats, check_weights(formats));
  if (source_.layers.empty() && restored_.linears.empty() && !recoded_.has_coded())
    fail(checkpoint.string(), ": has no KV scales",
         kept_ ? ", and its weights are in the wanted form already" : " and no FP8 weights",
         ": there is nothing to convert; give the scales with --scales");
  settle_queries(formats);
  settle_strategy(strategy_for(formats, options));
  settle_dialect(options);
  make_calibration(options, diagnostics);
  strip_scales(model_, config_, restored_.tensors);
}

void Conversion::read_scales(const ConversionOptions& options) {
  read_dialect(model_);  // refuses an unknown word also where other scales replace its own
  if (options.scales.empty()) {
    source_ = read_scales_of_checkpoint(model_, config_);
  } else {
    source_ = read_scales_of(options.scales, config_);
    if (find_form(scale_tensors_of(model_), config_))
      notes_.push_back("the checkpoint's own KV scales are replaced by those of " + source_.path);
  }
  warn_of_scales();
}

void Conversion::warn_of_scales() {
  bool all_ones = true, none_below = true;
  for (const LayerKvScales& layer : source_.layers)
    for (const std::vector<Scale>* side : {&layer.k, &layer.v})
      for (const Scale scale : *side) {
        all_ones = all_ones && scale.value == 1.0f;
        none_below = none_below && scale.value >= 1.0f;
      }
  if (source_.layers.empty()) return;
  if (all_ones)
    warnings_.push_back(source_.path +
                        ": every scale is 1.0, which is no calibration but what engines take "
                        "without one");
  else if (none_below && source_.may_be_raised)
    warnings_.push_back(source_.path +
                        ": no scale is below 1.0: ModelOpt raises smaller ones to that when it "
                        "exports for TensorRT-LLM");
  if (source_.keys == KeyPosition::kBeforeRope)
    warnings_.push_back(
        source_.path +
        (source_.manifest.is_null() ? ": scales of this form (" + source_.form + ") are made"
                                    : std::string(": its manifest says that scales are made")) +
        " of K before RoPE, and the cache holds K after it: its largest magnitude may be "
        "up to sqrt(2) = 1.414 times larger, which saturates, or as much smaller");
}

std::optional<CheckpointQuantization> Conversion::check_weights(
    const std::vector<std::string>& formats) {
  const bool writes_checkpoint = std::ranges::any_of(formats, [](const std::string& format) {
    return any_has(format, &OutputFormat::is_checkpoint);
  });
  if (!writes_checkpoint) return std::nullopt;
  std::optional<CheckpointQuantization> quantization = read_weights();
  if (!quantization) return std::nullopt;
  for (const std::string& warning : quantization->warnings) warnings_.push_back(warning);
  if (!quantization->problems.empty())
    fail(model_.given_path().string(), ": ", quantization->problems.front());
  check_described(model_, config_, *quantization);
  return quantization;
}

std::optional<CheckpointQuantization> Conversion::read_weights() {
  try {
    return read_checkpoint_quantization(model_, config_);
  } catch (const UnknownKey&) {
    throw;
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    // Where the weights change their form, this is an error (settle_weights).
    warnings_.push_back("weights are kept as they are, and no command reads them: " +
                        error.message());
    return std::nullopt;
  }
}

void Conversion::settle_weights(const std::vector<std::string>& formats,
                                std::optional<CheckpointQuantization> checked) {
  if (!kept_ || std::ranges::all_of(formats, [&](const std::string& format) {
        return keeps_weights(*kept_, format);
      }))
    return;
  restored_ = checked ? *std::move(checked) : read_checkpoint_quantization(model_, config_);
  if (!restored_.problems.empty())
    fail(model_.given_path().string(), ": ", restored_.problems.front());
  if (restored_.has_coded()) return recode(formats);
  check_all_weights_are_read();
  kept_.reset();
}

void Conversion::recode(const std::vector<std::string>& formats) {
  const std::string target = recoding_target(*kept_, formats);
  if (target.empty())
    fail(model_.given_path().string(), ": has weights of ", kept_->format, " (",
         restored_.matrices.front()->codes().name,
         ") that are kept where the output has the same form, or scales-json",
         kWriters.find(kept_->format) ? "" : "; compressed-tensors may hold the same codes");
  recoded_ = std::exchange(restored_, {});
  Recoded recoded = recode_weights(model_, config_, recoded_, kept_->format, target);
  notes_.push_back(std::move(recoded.note));
  if (!recoded.caveat.empty()) warnings_.push_back(std::move(recoded.caveat));
  kept_ = std::move(recoded.kept);
}

void Conversion::check_all_weights_are_read() const {
  constexpr std::string_view kWeight = ".weight";
  for (const std::string& name : model_.tensor_names()) {
    if (model_.tensor(name).dtype != DType::kF8E4M3 || !name.ends_with(kWeight)) continue;
    if (!restored_.linears.contains(name.substr(0, name.size() - kWeight.size())))
      fail(model_.given_path().string(), ": ", name,
           " is FP8 and no part of the text model: what its scales are is not read; such weights "
           "stay as they are where the output has the source's form, ",
           kept_->format);
  }
}

void Conversion::settle_queries(const std::vector<std::string>& formats) {
  const auto has_queries = [](const LayerKvScales& layer) { return !layer.q.empty(); };
  const bool are_read = std::ranges::any_of(source_.layers, has_queries);
  const StoredForm* form = form_with_queries(kept_);
  const bool are_written =
      form && are_read && std::ranges::all_of(formats, [](const std::string& format) {
        return any_has(format, &OutputFormat::holds_queries);
      });
  if (are_written) return;
  for (LayerKvScales& layer : source_.layers) layer.q.clear();
  const bool are_asked_for = strip_queries(kept_);
  if (are_read || are_asked_for) notes_.emplace_back("scales of queries are not written");
}

std::optional<Strategy> Conversion::strategy_for(const std::vector<std::string>& formats,
                                                 const ConversionOptions& options) const {
  if (options.strategy || source_.ranks.size() < 2) return options.strategy;
  const bool keeps_ranks = std::ranges::all_of(formats, [](const std::string& format) {
    return std::ranges::all_of(joined_names(format), [](const std::string& name) {
      return kWriters.at(name).holds_ranks;
    });
  });
  const size_t ranks = source_.ranks.size();
  const bool divides_all = std::ranges::all_of(config_.layers, [&](const LayerConfig& layer) {
    const auto heads = static_cast<size_t>(layer.cache.heads);
    return !layer.has_attention || heads % ranks == 0 || ranks % heads == 0;
  });
  if (keeps_ranks && divides_all) return Strategy::kAttnHead;
  return std::nullopt;
}

void Conversion::settle_strategy(std::optional<Strategy> strategy) {
  own_ = source_.layers;
  if (!source_.ranks.empty())
    for (size_t layer = 0; layer < own_.size(); ++layer)
      each_side(own_[layer], [&](std::vector<Scale>& side) {
        if (side.empty()) return;
        side.clear();
        for (const auto& rank : source_.ranks) side.push_back(rank[layer]);
      });
  for (size_t layer = 0; layer < own_.size(); ++layer) {
    const auto heads = static_cast<size_t>(config_.cache(static_cast<int64_t>(layer)).heads);
    LayerKvScales& target = source_.layers[layer];
    if (target.k.empty()) continue;
    const bool per_head = strategy == Strategy::kAttnHead;
    if (!per_head && strategy != Strategy::kTensor) continue;
    const LayerKvScales& own = own_[layer];
    const auto settled = [&](const std::vector<Scale>& side) {
      if (!per_head) return std::vector{largest_of(side)};
      return in_context(source_.path, [&] { return spread_over_heads(side, heads); });
    };
    target.k = settled(own.k);
    target.v = settled(own.v);
  }
  const bool has_queries = std::ranges::any_of(
      source_.layers, [](const LayerKvScales& layer) { return !layer.q.empty(); });
  if (!has_queries) return;
  if (form_with_queries(kept_) && strategy)
    fail(model_.given_path().string(),
         ": quantizes queries too, whose scales have the cache's strategy; --strategy is not for "
         "it");
}

void Conversion::settle_dialect(const ConversionOptions& options) {
  if (!options.dialect || *options.dialect == source_.format) return;
  if (source_.format == fp8::Format::kE5m2)
    fail(source_.path, ": scales of E5M2 have no other dialect, expected those of E4M3");
  // Each code has half the value in E4M3FNUZ.
  const float factor = *options.dialect == fp8::Format::kE4m3Fnuz ? 2.0f : 0.5f;
  for (auto* layers : {&source_.layers, &own_})
    for (LayerKvScales& layer : *layers)
      for (std::vector<Scale>* side : {&layer.k, &layer.v, &layer.q})
        for (Scale& scale : *side) {
          const float value = scale.value * factor;
          if (!std::isnormal(value))
            fail(source_.path, ": scale ", scale.value, " times ", factor,
                 " is not a normal number");
          scale.value = value;
        }
  notes_.push_back(std::string("scales are ") + (factor == 2.0f ? "doubled" : "halved") +
                   ": a code of E4M3FNUZ stands for half the value that it has in E4M3FN");
  source_.format = *options.dialect;
}

void Conversion::make_calibration(const ConversionOptions& options, Diagnostics& diagnostics) {
  std::vector<std::string> ignored;
  bool per_head = false;
  for (size_t layer = 0; layer < source_.layers.size(); ++layer) {
    if (source_.layers[layer].ignored)
      ignored.push_back(config_.attention_module(static_cast<int64_t>(layer)));
    per_head = per_head || source_.layers[layer].k.size() > 1 || source_.layers[layer].v.size() > 1;
  }
  // With one head there is one scale either way.
  const auto has_one_head = [](const LayerConfig& layer) { return layer.cache.heads == 1; };
  if (std::ranges::all_of(config_.layers, has_one_head) && !source_.layers.empty()) {
    const Json& said = source_.scheme;
    per_head = options.strategy ? *options.strategy == Strategy::kAttnHead
                                : said.is_object() && said.value("strategy", Json()) == "attn_head";
  }
  QuantPlan plan = in_context(model_.given_path().string(), [&] {
    std::optional<QuantArgs> cache;
    if (!source_.layers.empty())
      cache = cache_args(source_.scheme, per_head ? Strategy::kAttnHead : Strategy::kTensor);
    if (!cache && restored_.linears.empty()) return QuantPlan();
    return plan_of_modules(model_, config_, fp8_schemes(restored_), cache, ignored, diagnostics);
  });
  take_observers(source_.manifest, plan);
  calibration_ = empty_calibration(plan, config_, cache_dtype_of(source_.format));
  if (!member(source_.scheme, "observer")) calibration_.kv_args.observer.reset();
  add_stored_weights(restored_, calibration_);
  add_layers();
}

void Conversion::add_layers() {
  for (size_t layer = 0; layer < source_.layers.size(); ++layer) {
    const auto index = static_cast<int64_t>(layer);
    if (!config_.has_attention(index)) continue;
    const LayerKvScales& scales = source_.layers[layer];
    AttentionCalibration& own = calibration_.layers.emplace_back();
    own.layer = index;
    own.module = config_.attention_module(index);
    own.ignored = scales.ignored;
    own.k.scales = scales.k;
    own.v.scales = scales.v;
    if (resolved_strategy(calibration_.kv_args) == Strategy::kAttnHead && !scales.ignored)
      for (std::vector<Scale>* side : {&own.k.scales, &own.v.scales})
        if (side->size() == 1)
          side->resize(static_cast<size_t>(config_.cache(index).heads), side->front());
    if (scales.q.empty()) continue;
    own.q.emplace().scales = scales.q;
    const auto planned =
        std::ranges::find(calibration_.plan.attention, own.module, &PlannedAttention::module);
    KVCAL_CHECK(planned != calibration_.plan.attention.end());
    planned->q = calibration_.kv_args;
    planned->q->strategy = scales.q.size() > 1 ? Strategy::kAttnHead : Strategy::kTensor;
  }
}

ExportInput Conversion::input() const {
  return {.model = model_, .calibration = calibration_, .kept = kept()};
}

namespace {

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

}  // namespace

std::vector<LayerLoss> losses_of(const Conversion& conversion, const Writer& writer,
                                 int64_t tp_size) {
  std::vector<LayerLoss> losses;
  for (const AttentionCalibration& layer : conversion.input().calibration.layers) {
    if (layer.ignored) continue;
    const LayerKvScales& own = conversion.own_scales(static_cast<size_t>(layer.layer));
    const HeldScales held = writer.held(layer, tp_size);
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

}  // namespace kvcal
