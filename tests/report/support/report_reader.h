#pragma once

#include "core/json.h"
#include "report/eval_report.h"
#include "report/sweep_report.h"

/// Readers of the program's JSON, so that reports for tests can be written as JSON. Keys that are
/// missing stay empty, unknown keys are passed over. They throw Error naming the place of a value
/// that has another type.
namespace kvcal::report {

/// Reads the output of `kvcal eval --json`.
EvalReport read_eval_report(const Json& result);

/// Reads results.json of `kvcal sweep`. A cell's texts and whole numbers that are no measures are
/// its choices.
SweepReport read_sweep_report(const Json& results);

}  // namespace kvcal::report
