#pragma once

#include "report/eval_report.h"
#include "report/page.h"

/// The sections of an evaluation's page; without content where there is nothing to show.
namespace kvcal::report {

Section variants_section(const EvalReport& report);
Section kl_layers_section(const EvalReport& report);
Section positions_section(const EvalReport& report);
Section sequences_section(const EvalReport& report);
Section texts_section(const EvalReport& report);
Section sensitivity_section(const EvalReport& report);
Section questions_section(const EvalReport& report);

}  // namespace kvcal::report
