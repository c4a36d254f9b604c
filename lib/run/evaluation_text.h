#pragma once

#include <string>

#include "run/evaluation.h"

namespace kvcal {

// The results of the tasks of eval in words and tables, as lines for a terminal.

std::string evaluation_text(const LikelihoodResult& result);
std::string evaluation_text(const GsmTaskResult& result);
std::string evaluation_text(const SensitivityResult& result);

}  // namespace kvcal
