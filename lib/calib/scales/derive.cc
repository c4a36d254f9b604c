#include "calib/scales/derive.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "calib/statistics/observed_statistics.h"
#include "core/error.h"
#include "core/text.h"
#include "family/architecture.h"
#include "family/expected_tensors.h"
#include "quant/observations.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

/// Below this number of tokens, an expert's extremes are a matter of luck.
constexpr uint64_t kFewTokens = 32;

void add(MagnitudeHistogram& sum, const MagnitudeHistogram& other) {
  for (size_t bin = 0; bin < sum.counts.size(); ++bin) sum.counts[bin] += other.counts[bin];
}

/// Statistics of each channel, as of one head; without histograms.
std::vector<TensorStatistics> by_channel(const TensorStatistics& seen) {
  const auto samples = static_cast<size_t>(seen.samples());
  const size_t count = samples == 0 ? 0 : seen.channels.size() / samples;
  std::vector<TensorStatistics> channels(count);
  for (size_t i = 0; i < seen.channels.size(); ++i)
    channels[i % count].ranges.push_back(seen.channels[i]);
  return channels;
}

/// Statistics of each group of values that share a scale, as of one head.
std::vector<TensorStatistics> grouped(const TensorStatistics& seen, Strategy strategy) {
  if (strategy == Strategy::kChannel) return by_channel(seen);
  const auto heads = static_cast<size_t>(seen.heads);
  const size_t count = strategy == Strategy::kAttnHead ? heads : 1;
  std::vector<TensorStatistics> groups(
      count, {.ranges = std::vector<Range>(static_cast<size_t>(seen.samples())),
              .histograms = std::vector<MagnitudeHistogram>(1)});
  for (size_t i = 0; i < seen.ranges.size(); ++i)
    groups[i % heads % count].ranges[i / heads].fold(seen.ranges[i]);
  for (size_t head = 0; head < heads; ++head)
    add(groups[head % count].histograms[0], seen.histograms[head]);
  return groups;
}

/// Merges K and V: engines keep the latent and the rotated key in one cache with only k_scale (vLLM
/// `concat_and_cache_mla`).
void share(std::vector<TensorStatistics>& k, std::vector<TensorStatistics>& v) {
  for (size_t group = 0; group < k.size(); ++group) {
    for (size_t sample = 0; sample < k[group].ranges.size(); ++sample)
      k[group].ranges[sample].fold(v[group].ranges[sample]);
    add(k[group].histograms[0], v[group].histograms[0]);
    v[group] = k[group];
  }
}

/// The first of the largest; amax: not empty.
int64_t largest_of(const std::vector<Amax>& amax) {
  return std::ranges::max_element(amax, {}, &Amax::value) - amax.begin();
}

/// The first sample with the largest magnitude, and the first bucket of positions that has it.
std::optional<AmaxPlace> amax_place(const std::vector<Amax>& by_sample,
                                    const std::vector<Amax>& by_position) {
  if (by_sample.empty() || by_position.empty()) return std::nullopt;
  const auto bucket = static_cast<size_t>(largest_of(by_position));
  return AmaxPlace{.sample = largest_of(by_sample),
                   .first = first_position(bucket),
                   .last = first_position(bucket + 1) - 1};
}

/// Statistics of all samples, still without scales.
KvTensorCalibration pooled(const TensorStatistics& seen) {
  KvTensorCalibration all{.head_ranges = std::vector<Range>(static_cast<size_t>(seen.heads)),
                          .head_histograms = seen.histograms};
  std::vector<Amax> by_sample(static_cast<size_t>(seen.samples()));
  for (size_t i = 0; i < seen.ranges.size(); ++i) {
    all.head_ranges[i % all.head_ranges.size()].fold(seen.ranges[i]);
    float& amax = by_sample[i / all.head_ranges.size()].value;
    amax = std::max(amax, seen.ranges[i].amax().value);
  }
  for (const Range& range : seen.positions) all.position_amax.push_back(range.amax());
  if (!seen.kinds.empty()) all.kind_amax = KindAmax{seen.kinds[0].amax(), seen.kinds[1].amax()};
  all.amax_place = amax_place(by_sample, all.position_amax);
  all.convergence = convergence_of(by_sample);
  for (const MagnitudeHistogram& histogram : seen.histograms)
    all.num_values =
        std::accumulate(histogram.counts.begin(), histogram.counts.end(), all.num_values);
  return all;
}

/// Headroom of 1 changes no bit: a product with 1.0f is exact.
std::vector<Scale> scales_of(const std::vector<TensorStatistics>& groups, const QuantArgs& args,
                             const KvFormat& format, double headroom = 1.0) {
  const auto observer = make_observer(args);
  std::vector<Scale> scales;
  for (const TensorStatistics& group : groups) {
    const float amax = observer->amax(group, format).value * static_cast<float>(headroom);
    scales.push_back(scale_from(Amax{amax}, format));
  }
  return scales;
}

/// The calibration of K, V or Q. groups: grouped(seen), maybe shared with another tensor.
KvTensorCalibration calibrated(const TensorStatistics& seen,
                               const std::vector<TensorStatistics>& groups, const QuantArgs& args,
                               const DeriveOptions& options) {
  KvTensorCalibration side = pooled(seen);
  side.scales = scales_of(groups, args, kv_format_of(args, options.kv_dtype), options.headroom);
  // Nothing exceeds the range of an observer that does not clip; else values are to be counted.
  if (!make_observer(args)->may_clip()) side.num_saturated = 0;
  return side;
}

void warn_of_zeros(const AttentionCalibration& layer, Diagnostics& diagnostics) {
  for (const auto& [name, side] : {std::pair{"K", &layer.k}, std::pair{"V", &layer.v}})
    if (side->range().amax().value == 0.0f)
      diagnostics.warn(std::string(name) + " of " + layer.module +
                       " is zero everywhere; its scale is float32's epsilon");
}

/// Experts with their number of tokens, once each, in order.
using ExpertCounts = std::vector<std::pair<std::string, uint64_t>>;

/// "3 experts of layer 2".
std::string count_of(const ExpertCounts& experts, int64_t layer) {
  return counted(experts.size(), "expert") + " of layer " + std::to_string(layer);
}

/// "…experts.3 (2), …": the experts with the fewest tokens first, at most ten.
std::string names_of(ExpertCounts experts) {
  constexpr size_t kShown = 10;
  std::ranges::stable_sort(experts, {}, &ExpertCounts::value_type::second);
  const bool are_more = experts.size() > kShown;
  experts.resize(std::min(kShown, experts.size()));
  return join(experts, ", ",
              [](const auto& one) {
                return one.second == 0 ? one.first
                                       : one.first + " (" + std::to_string(one.second) + ")";
              }) +
         (are_more ? ", …" : "");
}

/// Experts of one layer without tokens, or with too few for meaningful extremes.
struct TokenReport {
  ExpertCounts unseen, rare;

  void add(const std::string& expert, uint64_t tokens) {
    ExpertCounts& counts = tokens == 0 ? unseen : rare;
    const std::pair entry(expert, tokens);
    if (tokens < kFewTokens && std::ranges::find(counts, entry) == counts.end())
      counts.push_back(entry);
  }
  void tell(int64_t layer, const DeriveOptions& options, Diagnostics& diagnostics) const {
    if (!unseen.empty() && !options.leaves_out_unseen)
      fail("no token reached ", count_of(unseen, layer),
           ", which gives their inputs no scale: ", names_of(unseen),
           options.all_experts ? "" : "; show every expert all tokens with --moe-all-experts");
    if (!rare.empty())
      diagnostics.warn("fewer than " + std::to_string(kFewTokens) + " tokens reached " +
                       count_of(rare, layer) + ": " + names_of(rare));
  }
};

void check_heads(const AttentionStatistics& seen, const ModelConfig& config, int64_t layer) {
  const auto check = [&](const TensorStatistics& side, int64_t heads, std::string_view name) {
    if (side.heads != heads)
      fail("the statistics hold ", counted(side.heads, "head"), " of ", name, " of ", seen.module,
           ", the model has ", heads);
  };
  check(seen.k, config.cache(layer).heads, "K");
  check(seen.v, config.cache(layer).heads, "V");
  if (seen.q) check(*seen.q, config.attention(layer).heads, "Q");
}

/// Throws Error where the statistics lack the channels of a layer whose scales are theirs.
void check_channels(const AttentionStatistics& seen, const ModelConfig& config, int64_t layer) {
  const LayerCache& cache = config.cache(layer);
  for (const auto& [side, name, head_dim] :
       {std::tuple{&seen.k, "K", cache.k_dim}, std::tuple{&seen.v, "V", cache.v_dim}}) {
    const int64_t wanted = side->samples() * cache.heads * head_dim;
    if (side->channels.empty())
      fail("the statistics hold no channels of ", name, " of ", seen.module,
           "; calibrate keeps them where its recipe has strategy 'channel', such as --recipe "
           "int8_kv_channel, and --save-statistics");
    if (std::ssize(side->channels) != wanted)
      fail("the statistics hold ", counted(side->channels.size(), "range"), " of channels of ",
           name, " of ", seen.module, ", expected ", wanted);
  }
}

/// What was seen of attention is true of the same scales alone.
void take_damage(const ComparedScales& compared, AttentionCalibration& layer) {
  const auto are_same = [](const std::vector<Scale>& a, const std::vector<Scale>& b) {
    return std::ranges::equal(a, b, {}, &Scale::value, &Scale::value);
  };
  if (!layer.ignored && are_same(compared.k, layer.k.scales) &&
      are_same(compared.v, layer.v.scales))
    layer.damage = compared.damage;
}

/// Probability outside the interval at each end.
constexpr double kTail = 0.025;

/// Smallest value (of ascending ones) that a draw's maximum does not exceed with the probability.
Amax quantile_of_maximum(const std::vector<Amax>& values, double probability) {
  const auto count = static_cast<double>(values.size());
  for (size_t k = 1; k < values.size(); ++k)
    if (count * std::log(static_cast<double>(k) / count) >= std::log(probability))
      return values[k - 1];
  return values.back();
}

}  // namespace

AttentionCalibration derive_attention(const AttentionStatistics& seen,
                                      const PlannedAttention& planned, const ModelConfig& config,
                                      const DeriveOptions& options, Diagnostics& diagnostics) {
  const Strategy strategy = resolved_strategy(planned.kv);
  std::vector<TensorStatistics> k = grouped(seen.k, strategy), v = grouped(seen.v, strategy);
  if (config.architecture->has_latent_attention && options.ties_latent) share(k, v);
  AttentionCalibration result{.layer = planned.layer,
                              .module = planned.module,
                              .scales_at = draft_scale_module(config, planned.layer),
                              .ignored = planned.ignored,
                              .reads_cache_of = read_cache(config, planned.layer),
                              .k = calibrated(seen.k, k, planned.kv, options),
                              .v = calibrated(seen.v, v, planned.kv, options)};
  // A latent without a rotated key has no V; engines keep K alone, with its scale.
  if (config.cache(planned.layer).v_dim == 0) result.v = result.k;
  if (planned.q && seen.q)
    result.q = calibrated(*seen.q, grouped(*seen.q, strategy), *planned.q, options);
  warn_of_zeros(result, diagnostics);
  return result;
}

InputsByName by_name(const std::vector<InputStatistics>& inputs) {
  InputsByName named;
  for (const InputStatistics& input : inputs) named[input.name] = &input;
  return named;
}

std::vector<LinearCalibration> derive_inputs(const InputsByName& seen, const QuantPlan& plan,
                                             int64_t layer, const InputNames& names,
                                             const DeriveOptions& options,
                                             Diagnostics& diagnostics) {
  TokenReport report;
  std::vector<LinearCalibration> result;
  for (const PlannedLinear& linear : plan.linears) {
    const auto& args = plan.groups[linear.group].input_activations;
    if (linear.layer != layer || !args || args->dynamic) continue;
    const auto found = seen.find(names.of(linear.module));
    const uint64_t tokens = found == seen.end() ? 0 : found->second->tokens;
    const auto expert = names.expert_of(linear.module);
    if (tokens == 0 && !expert) fail("nothing was seen of the input of ", linear.module);
    // Other modules get every token, and the user knows their number.
    if (expert && !(options.all_experts && tokens > 0)) report.add(*expert, tokens);
    if (tokens == 0) continue;
    const std::vector<TensorStatistics> groups = grouped(found->second->seen, Strategy::kTensor);
    result.push_back({.module = linear.module,
                      .input_amax = groups[0].range().amax(),
                      .input_scale = scales_of(groups, *args, fp8::Format::kE4m3Fn)[0],
                      .input_tokens = tokens});
  }
  report.tell(layer, options, diagnostics);
  return result;
}

bool has_channel_scales(const QuantPlan& plan) {
  return std::ranges::any_of(plan.attention, [](const PlannedAttention& planned) {
    return !planned.ignored && resolved_strategy(planned.kv) == Strategy::kChannel;
  });
}

void check_headroom(const QuantPlan& plan, double headroom) {
  if (headroom == 1.0) return;
  const std::string found = "headroom is " + short_float(headroom);
  if (!(headroom > 1.0))
    fail(found, ", expected 1 or more: less would clip the largest values seen");
  const auto kept = [](const PlannedAttention& planned) { return !planned.ignored; };
  if (std::ranges::none_of(plan.attention, kept))
    fail(found, ", but the recipe makes no scales of K and V");
  const auto check = [&](const PlannedAttention& planned, const QuantArgs& args) {
    const std::string observer =
        args.observer.value_or(std::string(default_observer(ArgsRole::kKvCache)));
    if (make_observer(args)->may_clip())
      fail(found, ", which is room beyond the largest values seen, but observer '", observer,
           "' of ", planned.module, " leaves some of these out; expected static_minmax");
  };
  for (const PlannedAttention& planned : plan.attention) {
    if (planned.ignored) continue;
    check(planned, planned.kv);
    if (planned.q) check(planned, *planned.q);
  }
}

void check_statistics_suffice(const QuantPlan& plan) {
  for (const PlannedAttention& planned : plan.attention)
    if (!planned.ignored && make_observer(planned.kv)->judges_attention())
      fail("observer '", planned.kv.observer.value_or(""), "' of ", planned.module,
           " judges scales by attention, which statistics do not hold; expected another observer, "
           "or kvcal calibrate, which runs the model");
}

std::optional<int64_t> read_cache(const ModelConfig& config, int64_t layer) {
  if (config.has_own_cache(layer)) return std::nullopt;
  return config.layer(layer).cache_layer;
}

Calibration empty_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype,
                              double headroom) {
  Calibration calibration;
  calibration.headroom = headroom;
  const auto kept = std::ranges::find(plan.attention, false, &PlannedAttention::ignored);
  calibration.kv_format = fp8_format(kv_dtype);
  if (kept != plan.attention.end()) {
    calibration.kv_args = kept->kv;
    calibration.kv_format = kv_format_of(kept->kv, kv_dtype);
  }
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.is_latent = config.architecture->has_latent_attention;
  calibration.plan = plan;
  return calibration;
}

Calibration derive(const Statistics& statistics, const QuantPlan& plan, const ModelConfig& config,
                   const DeriveOptions& options, Diagnostics& diagnostics) {
  Calibration calibration = empty_calibration(plan, config, options.kv_dtype, options.headroom);
  for (const PlannedAttention& planned : plan.attention) {
    const auto seen =
        std::ranges::find(statistics.attention, planned.module, &AttentionStatistics::module);
    if (seen == statistics.attention.end()) fail("the statistics hold nothing of ", planned.module);
    if (planned.q && !seen->q) fail("the statistics hold no queries of ", planned.module);
    check_heads(*seen, config, planned.layer);
    if (!planned.ignored && resolved_strategy(planned.kv) == Strategy::kChannel)
      check_channels(*seen, config, planned.layer);
    calibration.layers.push_back(derive_attention(*seen, planned, config, options, diagnostics));
    if (seen->compared) take_damage(*seen->compared, calibration.layers.back());
  }
  const InputNames names(config);
  const InputsByName inputs = by_name(statistics.inputs);
  for (int64_t i = 0; i <= config.num_hidden_layers; ++i) {
    // lm_head comes last.
    const int64_t layer = i == config.num_hidden_layers ? -1 : i;
    std::ranges::move(derive_inputs(inputs, plan, layer, names, options, diagnostics),
                      std::back_inserter(calibration.linears));
  }
  return calibration;
}

Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config,
                                KvDType kv_dtype) {
  Calibration planned = empty_calibration(plan, config, kv_dtype);
  for (const PlannedAttention& attention : plan.attention) {
    const Strategy strategy = resolved_strategy(attention.kv);
    const LayerCache& cache = config.cache(attention.layer);
    const auto side = [&](int64_t heads, int64_t head_dim = 1) {
      const int64_t count = strategy == Strategy::kChannel    ? heads * head_dim
                            : strategy == Strategy::kAttnHead ? heads
                                                              : 1;
      return KvTensorCalibration{.scales = std::vector<Scale>(static_cast<size_t>(count))};
    };
    planned.layers.push_back({.layer = attention.layer,
                              .module = attention.module,
                              .scales_at = draft_scale_module(config, attention.layer),
                              .ignored = attention.ignored,
                              .reads_cache_of = read_cache(config, attention.layer),
                              .k = side(cache.heads, cache.k_dim),
                              .v = side(cache.heads, cache.v_dim)});
    if (attention.q) planned.layers.back().q = side(config.attention(attention.layer).heads);
  }
  for (const PlannedLinear& linear : plan.linears) {
    const auto& inputs = plan.groups[linear.group].input_activations;
    if (inputs && !inputs->dynamic)
      planned.linears.push_back(
          {.module = linear.module, .input_amax = {}, .input_scale = {}, .input_tokens = 1});
  }
  return planned;
}

AmaxConvergence convergence_of(std::span<const Amax> samples) {
  KVCAL_CHECK(!samples.empty());
  AmaxConvergence result;
  Amax running;
  const auto all = static_cast<int64_t>(samples.size());
  for (int64_t seen = 1, next = 1; seen <= all; ++seen) {
    running.value = std::max(running.value, samples[static_cast<size_t>(seen - 1)].value);
    if (seen != next && seen != all) continue;
    result.num_samples.push_back(seen);
    result.running.push_back(running);
    if (seen == next) next *= 2;
  }
  std::vector<Amax> ascending(samples.begin(), samples.end());
  std::ranges::sort(ascending, {}, &Amax::value);
  result.low = quantile_of_maximum(ascending, kTail);
  result.high = quantile_of_maximum(ascending, 1.0 - kTail);
  return result;
}

}  // namespace kvcal
