#pragma once

#include <ostream>

#include "run/evaluation.h"

namespace kvcal {

/// The results of eval's tasks for people.
void print_likelihood(const LikelihoodResult& result, std::ostream& out);
void print_answers(const GsmTaskResult& result, std::ostream& out);
void print_sensitivity(const SensitivityResult& result, std::ostream& out);

}  // namespace kvcal
