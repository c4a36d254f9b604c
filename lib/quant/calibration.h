#pragma once

#include "quant/fp8.h"
#include "quant/magnitude_histogram.h"
#include "quant/quant_args.h"
#include "quant/quant_plan.h"
#include "quant/scale.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// How the largest magnitude came about, sample by sample.
struct AmaxConvergence {
  std::vector<int64_t> num_samples;  ///< 1, 2, 4, …, all
  std::vector<Amax> running;         ///< over the first num_samples[i] samples
  /// Bootstrap interval of 95 % of the amax over as many samples (calib/convergence.h).
  Amax low, high;
};

/// Statistics of K or V in one attention module. Heads are KV heads, before any is repeated.
struct KvStatistics {
  std::vector<Range> head_ranges;  ///< [num_key_value_heads] extremes over all samples
  std::vector<MagnitudeHistogram> head_histograms;  ///< [num_key_value_heads]
  uint64_t num_values = 0;
  AmaxConvergence convergence = {};  ///< over all heads; empty: not known

  Range range() const {
    Range all;
    for (const Range& head : head_ranges) all.fold(head);
    return all;
  }
};

/// One tensor (K or V) of one attention module: what was seen and the scales made of it.
struct KvTensorCalibration {
  KvStatistics statistics;
  std::vector<Scale> scales;  ///< one (strategy tensor) or num_key_value_heads (attn_head)
  /// Values whose magnitude is over scale * max_value(format); nullopt where nobody counted them.
  std::optional<uint64_t> num_saturated = {};
};

/// One attention module. `ignored` modules have no scale in any output.
struct AttentionCalibration {
  int64_t layer = 0;
  std::string module;  ///< "model.layers.0.self_attn"
  bool ignored = false;
  KvTensorCalibration k, v;
  /// Queries after RoPE, heads of the model: where the plan quantizes them.
  std::optional<KvTensorCalibration> q = {};
};

/// The input of one Linear that the plan quantizes with a static scale.
struct LinearCalibration {
  std::string module;
  Amax input_amax;
  Scale input_scale;
  uint64_t input_tokens = 0;  ///< seen; of an expert those routed to it, but with all experts shown
};

/// The value that travels from calib to export, report and eval.
struct Calibration {
  QuantArgs kv_args;
  fp8::Format kv_format = fp8::Format::kE4m3Fn;
  int64_t num_hidden_layers = 0;  ///< of the model, also those without an entry
  /// K is a normed latent and V a rotated key that engines keep in one cache with one scale (MLA).
  bool is_latent = false;
  std::vector<AttentionCalibration> layers;  ///< in layer order
  QuantPlan plan = {};
  std::vector<LinearCalibration> linears = {};  ///< of static inputs, in the plan's order
  /// Scales of weights that are FP8 in the source already, row-major as in ScaleGrid, by module of
  /// the plan.
  std::map<std::string, std::vector<Scale>, std::less<>> stored_weights = {};
};

}  // namespace kvcal
