#pragma once

#include "report/scatter_chart.h"
#include "report/spread_chart.h"
#include "report/sweep_report.h"

/// Charts of a sweep's sections and plots.
namespace kvcal::report {

/// Cells by both measures of the front, and the legend of their colours.
ScatterChart pareto_chart(const SweepReport& report);
Legend pareto_legend(const SweepReport& report);

/// For each dimension with several choices: how good the cells of each choice are.
std::vector<SpreadChart> choice_charts(const SweepReport& report);

/// A key as words: "kv forward".
std::string with_blanks(std::string key);
/// A choice as it is shown: of paths the name of the file.
std::string choice_words(const std::string& choice);

}  // namespace kvcal::report
