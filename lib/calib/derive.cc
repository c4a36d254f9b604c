#include "calib/derive.h"

#include <algorithm>

#include "calib/observer.h"
#include "calib/statistics.h"
#include "model/architecture.h"

namespace kvcal {
namespace {

/// Fewer tokens than this make an expert's extremes a matter of luck.
constexpr uint64_t kFewTokens = 32;

void add(MagnitudeHistogram& sum, const MagnitudeHistogram& other) {
  for (size_t bin = 0; bin < sum.counts.size(); ++bin) sum.counts[bin] += other.counts[bin];
}

/// Heads that share a scale, together.
std::vector<Observed> grouped(const TensorStatistics& seen, Strategy strategy) {
  const auto heads = static_cast<size_t>(seen.heads);
  const bool per_head = strategy == Strategy::kAttnHead;
  std::vector<Observed> groups(per_head ? heads : 1);
  for (Observed& group : groups) group.samples.resize(static_cast<size_t>(seen.samples()));
  for (size_t i = 0; i < seen.ranges.size(); ++i)
    groups[per_head ? i % heads : 0].samples[i / heads].fold(seen.ranges[i]);
  for (size_t head = 0; head < heads; ++head)
    add(groups[per_head ? head : 0].histogram, seen.histograms[head]);
  return groups;
}

/// Engines keep the latent and the rotated key in one cache with k_scale alone (vLLM
/// `concat_and_cache_mla`), so one scale must carry both.
void share(std::vector<Observed>& k, std::vector<Observed>& v) {
  for (size_t group = 0; group < k.size(); ++group) {
    for (size_t sample = 0; sample < k[group].samples.size(); ++sample)
      k[group].samples[sample].fold(v[group].samples[sample]);
    add(k[group].histogram, v[group].histogram);
    v[group] = k[group];
  }
}

KvStatistics pooled(const TensorStatistics& seen) {
  KvStatistics statistics;
  statistics.head_ranges.resize(static_cast<size_t>(seen.heads));
  for (size_t i = 0; i < seen.ranges.size(); ++i)
    statistics.head_ranges[i % statistics.head_ranges.size()].fold(seen.ranges[i]);
  statistics.head_histograms = seen.histograms;
  for (const MagnitudeHistogram& histogram : seen.histograms)
    for (const uint64_t count : histogram.counts) statistics.num_values += count;
  return statistics;
}

std::vector<Scale> scales_of(const std::vector<Observed>& groups, const QuantArgs& args,
                             fp8::Format format) {
  const auto observer = make_observer(args);
  std::vector<Scale> scales;
  for (const Observed& group : groups)
    scales.push_back(scale_from(observer->amax(group, format), format));
  return scales;
}

}  // namespace

AttentionCalibration derive_attention(const AttentionStatistics& seen,
                                      const PlannedAttention& planned, const ModelConfig& config,
                                      const DeriveOptions& options) {
  AttentionCalibration result{.layer = planned.layer,
                              .module = planned.module,
                              .ignored = planned.ignored,
                              .k = {.statistics = pooled(seen.k), .scales = {}},
                              .v = {.statistics = pooled(seen.v), .scales = {}}};
  const fp8::Format format = fp8_format(options.kv_dtype);
  const Strategy strategy = resolved_strategy(planned.kv);
  std::vector<Observed> k = grouped(seen.k, strategy), v = grouped(seen.v, strategy);
  if (config.architecture->has_latent_attention && options.ties_latent) share(k, v);
  result.k.scales = scales_of(k, planned.kv, format);
  result.v.scales = scales_of(v, planned.kv, format);
  if (planned.q && seen.q)
    result.q = {.statistics = pooled(*seen.q),
                .scales = scales_of(grouped(*seen.q, strategy), *planned.q, format)};
  return result;
}

std::vector<LinearCalibration> derive_inputs(const std::vector<InputStatistics>& seen,
                                             const QuantPlan& plan, const ModelConfig& config,
                                             const DeriveOptions& options,
                                             Diagnostics& diagnostics) {
  std::map<std::string_view, const InputStatistics*> by_name;
  for (const InputStatistics& input : seen) by_name[input.name] = &input;
  const InputNames names(config);
  std::vector<LinearCalibration> result;
  for (const PlannedLinear& linear : plan.linears) {
    const auto& args = plan.groups[linear.group].input_activations;
    if (!args || args->dynamic) continue;
    const auto found = by_name.find(names.of(linear.module));
    const uint64_t tokens = found == by_name.end() ? 0 : found->second->tokens;
    if (tokens == 0)
      fail("no token reached ", linear.module, ", so its input has no scale",
           options.all_experts ? "" : "; show every expert all tokens with --moe-all-experts");
    if (tokens < kFewTokens)
      diagnostics.warn("only " + std::to_string(tokens) + " tokens reached " + linear.module);
    const std::vector<Observed> groups = grouped(found->second->seen, Strategy::kTensor);
    result.push_back({.module = linear.module,
                      .input_amax = groups[0].range().amax(),
                      .input_scale = scales_of(groups, *args, fp8::Format::kE4m3Fn)[0],
                      .input_tokens = tokens});
  }
  return result;
}

Calibration empty_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype) {
  Calibration calibration;
  const auto kept = std::ranges::find(plan.attention, false, &PlannedAttention::ignored);
  if (kept != plan.attention.end()) calibration.kv_args = kept->kv;
  calibration.kv_format = fp8_format(kv_dtype);
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.is_latent = config.architecture->has_latent_attention;
  calibration.plan = plan;
  return calibration;
}

Calibration derive(const Statistics& statistics, const QuantPlan& plan, const ModelConfig& config,
                   const DeriveOptions& options, Diagnostics& diagnostics) {
  Calibration calibration = empty_calibration(plan, config, options.kv_dtype);
  for (const PlannedAttention& planned : plan.attention) {
    const auto seen =
        std::ranges::find(statistics.attention, planned.module, &AttentionStatistics::module);
    if (seen == statistics.attention.end()) fail("the statistics hold nothing of ", planned.module);
    if (planned.q && !seen->q) fail("the statistics hold no queries of ", planned.module);
    calibration.layers.push_back(derive_attention(*seen, planned, config, options));
  }
  calibration.linears = derive_inputs(statistics.inputs, plan, config, options, diagnostics);
  return calibration;
}

}  // namespace kvcal
