#include "sweep_report.h"

#include "report/sweep_report.h"

namespace kvcal {

void write_sweep_report(const Json& results, const ReportOptions& options) {
  if (!options.is_asked_for()) return;
  const report::SweepReport report = report::read_sweep_report(results);
  write_report(options, report::sweep_page(report), report::sweep_plots(report));
}

}  // namespace kvcal
