#pragma once

#include "report/charts.h"
#include "report/eval_report.h"
#include "report/page.h"

/// Charts of an evaluation's sections and plots; empty where nothing was measured. The sections of
/// its page; without content where there is nothing to show.
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

Section kl_layers_section(const EvalReport& report);
Section positions_section(const EvalReport& report);
Section sequences_section(const EvalReport& report);
Section texts_section(const EvalReport& report);
Section sensitivity_section(const EvalReport& report);
Section questions_section(const EvalReport& report);

}  // namespace kvcal::report
