#pragma once

#include <cstddef>
#include <string>

#include "run/evaluation.h"

namespace kvcal {

// The results of the tasks of eval in words and tables, as lines for a terminal. A table of more
// than most_rows layers has those that lose most instead.

std::string evaluation_text(const LikelihoodResult& result, size_t most_rows);
std::string evaluation_text(const GsmTaskResult& result);
std::string evaluation_text(const SensitivityResult& result, size_t most_rows);

}  // namespace kvcal
