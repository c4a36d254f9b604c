#pragma once

#include "shell/description.h"

namespace kvcal {

/// Gives the options of a command the titles of their groups, and brings each group together. A
/// command of few options has one group, without a title. An option that no group names comes under
/// "Options"; options that have a title keep it, behind the others.
void group_options(CommandDescription& command);

}  // namespace kvcal
