#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "calib/statistics.h"
#include "core/diagnostics.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/kv_dtype.h"
#include "quant/statistics.h"

namespace kvcal {

struct DeriveOptions {
  KvDType kv_dtype = KvDType::kFp8E4m3;
  /// K and V of a latent cache share their scales, as engines that keep them in one cache need.
  bool ties_latent = true;
  bool all_experts = false;  ///< were shown every token, for messages
  /// Inputs of experts that no token reached are left out, instead of an Error.
  bool leaves_out_unseen = false;
};

/// The scales of one attention module. ignored ones have none. num_saturated is 0 where the
/// observer cannot clip and else not known. A line warns of K or V that is zero everywhere.
AttentionCalibration derive_attention(const AttentionStatistics& seen,
                                      const PlannedAttention& planned, const ModelConfig& config,
                                      const DeriveOptions& options, Diagnostics& diagnostics);

/// Inputs by their names. Borrows.
using InputsByName = std::map<std::string_view, const InputStatistics*>;
InputsByName by_name(const std::vector<InputStatistics>& inputs);

/// The input scales of the Linears of one layer (-1: lm_head) whose groups have static ones, in the
/// plan's order. Throws Error naming all experts of the layer that saw no token; a line warns of
/// those that saw few.
std::vector<LinearCalibration> derive_inputs(const InputsByName& seen, const QuantPlan& plan,
                                             int64_t layer, const InputNames& names,
                                             const DeriveOptions& options,
                                             Diagnostics& diagnostics);

/// Everything the plan asks for, from statistics alone: the same scales as a run with the exact
/// forward that kept them. Throws Error where they lack something.
Calibration derive(const Statistics& statistics, const QuantPlan& plan, const ModelConfig& config,
                   const DeriveOptions& options, Diagnostics& diagnostics);

/// A calibration by the plan, without any layer or input yet.
Calibration empty_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype);

/// The calibration of a plan with scale 1.0 everywhere: a format that cannot hold it can hold none
/// of that plan.
Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype);

}  // namespace kvcal
