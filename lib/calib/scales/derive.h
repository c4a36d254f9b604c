// Scales come from statistics alone. A run and `kvcal scales` use the same derive, so they
// cannot differ. Statistics keep the extremes of each sample, which moving averages need, and
// one histogram of magnitudes a head, which searches need. They hold both for every head,
// whatever the strategy, so other granularities need no second run. Extremes of channels they hold
// where the run's recipe asked for scales of channels.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "calib/statistics/observed_statistics.h"
#include "core/diagnostics.h"
#include "family/model_config.h"
#include "quant/cache_type.h"
#include "quant/calibration.h"
#include "quant/statistics.h"

namespace kvcal {

/// Beyond it, more than half of E4M3's normal range would lie above every value seen.
constexpr double kMostHeadroom = 1000.0;

struct DeriveOptions {
  KvDType kv_dtype = KvDType::kFp8E4m3;  ///< of schemes of type float
  /// K and V of a latent cache share their scales, because engines keep them in one cache.
  bool ties_latent = true;
  bool all_experts = false;  ///< experts were shown every token; for messages
  /// Of the scales of K, V and Q: room for values beyond the largest seen, at least 1.
  /// scale = headroom * amax / largest code. Source: ModelOpt's headroom.
  double headroom = 1.0;
  /// Leaves out inputs of experts that no token reached, instead of throwing Error.
  bool leaves_out_unseen = false;
};

/// Scales of one attention module; none for ignored ones. num_saturated is 0 where the observer
/// cannot clip, else nullopt. Warns of K or V that is zero everywhere.
AttentionCalibration derive_attention(const AttentionStatistics& seen,
                                      const PlannedAttention& planned, const ModelConfig& config,
                                      const DeriveOptions& options, Diagnostics& diagnostics);

/// Inputs by name. Borrows.
using InputsByName = std::map<std::string_view, const InputStatistics*>;
InputsByName by_name(const std::vector<InputStatistics>& inputs);

/// Input scales of the Linears of one layer (-1: lm_head) whose groups have static ones, in the
/// plan's order. Throws Error naming all experts of the layer that no token reached; warns of those
/// that few reached.
std::vector<LinearCalibration> derive_inputs(const InputsByName& seen, const QuantPlan& plan,
                                             int64_t layer, const InputNames& names,
                                             const DeriveOptions& options,
                                             Diagnostics& diagnostics);

/// Makes the calibration of a plan from statistics alone: the same scales as the exact-forward run
/// that kept them, but for observers that judge attention: for these the first scales, of amax.
/// Throws Error where the statistics lack something.
Calibration derive(const Statistics& statistics, const QuantPlan& plan, const ModelConfig& config,
                   const DeriveOptions& options, Diagnostics& diagnostics);

/// Whether the plan's scales of K and V are those of channels.
bool has_channel_scales(const QuantPlan& plan);

/// Throws Error where the plan has no scales for headroom, or an observer that leaves out what
/// headroom makes room for. headroom of 1 is always right.
void check_headroom(const QuantPlan& plan, double headroom);

/// Throws Error where the plan has an observer that judges scales by attention, which statistics do
/// not hold.
void check_statistics_suffice(const QuantPlan& plan);

/// The earlier layer whose K and V a layer reads; nullopt: it has its own.
std::optional<int64_t> read_cache(const ModelConfig& config, int64_t layer);

/// Calibration of the plan, still without layers and inputs.
Calibration empty_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype,
                              double headroom = 1.0);

/// Calibration of a plan with scale 1.0 everywhere. A format that cannot hold it cannot hold any
/// calibration of the plan.
Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype);

/// Running amax over the samples, with a 95 % percentile bootstrap interval. samples: the amax of
/// each, in order, at least one. The interval is the limit for infinitely many draws of n samples
/// each: with the values in order, the maximum of a draw is at most the k-th with probability (k /
/// n)^n, so nothing is drawn at random. Its upper end is always the amax. It shows how much depends
/// on few samples, not what other samples would give.
AmaxConvergence convergence_of(std::span<const Amax> samples);

}  // namespace kvcal
