#include "report/eval_charts.h"

namespace kvcal::report {

std::vector<Plot> eval_plots(const EvalReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "kl-by-layer", kl_by_layer_chart(report));
  add_plot(plots, "kl-by-position", kl_by_position_chart(report));
  add_plot(plots, "nll-by-position", nll_by_position_chart(report));
  SpreadChart sequences = sequences_chart(report);
  sequences.width = kPlotWidth;
  add_plot(plots, "kl-by-sequence", draw_spread(sequences));
  if (!report.sensitivity) return plots;
  ScatterChart sensitivity = sensitivity_chart(*report.sensitivity);
  sensitivity.width = kPlotWidth;
  add_plot(plots, "sensitivity", draw_scatter(sensitivity));
  add_plot(plots, "ranking", ranking_chart(*report.sensitivity));
  return plots;
}

}  // namespace kvcal::report
