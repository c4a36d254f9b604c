#pragma once

#include <string>
#include <vector>

#include "report/metrics.h"
#include "report/plot.h"

namespace kvcal::report {

/// A cell of the grid.
struct SweepCell {
  std::string id, status, error;
  std::vector<std::string> choices = {};  ///< of each dimension; empty where it has none
  Metrics metrics = {};
  bool is_pareto = false;
  std::string verdict = {};  ///< in words; empty: no KL was measured

  bool is_done() const { return status == "done"; }
};

/// Everything the page of a sweep shows. All strings may come from files of strangers.
struct SweepReport {
  std::string name, version;
  std::string pareto_x, pareto_y;         ///< keys of measures
  std::string models = {}, dataset = {};  ///< names; empty: not known
  std::vector<std::string> dimensions;    ///< "model", "recipe", … as the cells have them
  std::vector<SweepCell> cells = {};
};

/// A choice as it is shown: of paths the name of the file.
std::string choice_words(const std::string& choice);
/// Cells by both measures of the front.
ScatterChart pareto_chart(const SweepReport& report);
/// For each dimension with several choices: how good the cells of each choice are.
std::vector<SpreadChart> choice_charts(const SweepReport& report);

/// One HTML file, complete in itself. Same input, same bytes.
std::string sweep_page(const SweepReport& report);

/// "pareto" and "choices-<number of the dimension>", where cells have the measures.
std::vector<Plot> sweep_plots(const SweepReport& report);

}  // namespace kvcal::report
