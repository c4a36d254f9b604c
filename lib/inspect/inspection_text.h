#pragma once

#include <string>

#include "inspect/inspection.h"

namespace kvcal {

/// An inspection in words and tables, as lines for a terminal. has_unicode: whether the terminal
/// shows block characters.
std::string inspection_text(const InspectionResult& found, bool has_unicode);

/// Role, dtype and shape of every tensor, a line each.
std::string tensors_text(const std::vector<ListedTensor>& tensors);

}  // namespace kvcal
