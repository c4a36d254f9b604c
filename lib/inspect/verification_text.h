#pragma once

#include <string>

#include "inspect/verification.h"

namespace kvcal {

/// The report of one engine in words and tables, as lines for a terminal. checkpoint: its name;
/// is_summary: a row for the layers of one source instead of a row for each layer.
std::string verification_text(const VerifyReport& report, const std::string& checkpoint,
                              bool is_summary);

/// The verdict in one line without its end; for one that problem_of finds no fault with.
std::string verdict_text(const Verdict& verdict);

}  // namespace kvcal
