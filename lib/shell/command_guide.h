#pragma once

#include "shell/description.h"

namespace kvcal {

/// Adds what the command line's own description does not have: examples, and the variables of the
/// environment that change what the command does. A command without a name is the program.
void add_guide(CommandDescription& command);

}  // namespace kvcal
