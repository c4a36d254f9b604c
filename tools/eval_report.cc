#include "eval_report.h"

#include "report/eval_report.h"

namespace kvcal {

void write_eval_report(const Json& result, const ReportOptions& options) {
  if (!options.is_asked_for()) return;
  const report::EvalReport report = report::read_eval_report(result);
  write_report(options, report::eval_page(report), report::eval_plots(report));
}

}  // namespace kvcal
