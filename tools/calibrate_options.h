#pragma once

#include "output_options.h"
#include "plots.h"
#include "run/calibrate_request.h"

namespace kvcal {

struct CalibrateOptions {
  CalibrateRequest request;
  ReportOptions report;
  bool json = false;
};

void add_calibrate_options(CLI::App& command, CalibrateOptions& options);

}  // namespace kvcal
