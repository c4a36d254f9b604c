#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "report/eval_report.h"
#include "run/eval_variants.h"

namespace kvcal {

// Parts of JSON, pages and texts that the tasks of `eval` share.

/// A page that names the run and what KL is measured from, and the sequences where the task scores
/// any.
report::EvalReport page_of(const EvalOptions& options, const std::string& task,
                           const EvalVariants& variants,
                           std::optional<size_t> num_sequences = std::nullopt);
/// The same facts in JSON.
Json run_json(const EvalOptions& options, const report::EvalReport& page);

/// "fp8_e4m3+attention"
std::string cache_text(const CacheLabel& cache);
/// json, with a single variant's numbers beside the run's own.
Json flattened(Json json, bool is_single);

/// "99.25 %"
std::string exact_percent(double fraction);
/// Of a list too long to print, only so many of the layers that lose most.
size_t num_listed(size_t num_layers, size_t most_rows);
/// " (the worst 10 of 80 layers; --verbose lists all):"
std::string listed_text(size_t num_layers, size_t most_rows);

}  // namespace kvcal
