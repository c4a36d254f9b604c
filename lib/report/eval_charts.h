#pragma once

#include "report/eval_report.h"
#include "report/scatter_chart.h"
#include "report/series_chart.h"
#include "report/spread_chart.h"

/// Charts of an evaluation's sections and plots; empty where nothing was measured.
namespace kvcal::report {

SeriesChart kl_by_layer_chart(const EvalReport& report);
SeriesChart kl_by_position_chart(const EvalReport& report);
/// NLL of the variants, and of the reference where it is known.
SeriesChart nll_by_position_chart(const EvalReport& report);
/// Mean KL of the sequences, or their NLL where there is no KL.
SpreadChart sequences_chart(const EvalReport& report);
/// KL against bytes of the cache by kept layers.
ScatterChart sensitivity_chart(const Sensitivity& sensitivity);
/// KL of every layer alone, the dearest first.
SeriesChart ranking_chart(const Sensitivity& sensitivity);

/// "kept 3", "all FP8".
std::string kept_words(const MixedPrecision& row);
/// "0–15"
std::string position_words(const PositionAccuracy& position);

}  // namespace kvcal::report
