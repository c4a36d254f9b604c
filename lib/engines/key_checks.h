#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "engines/engine_rules.h"

namespace kvcal {

/// "strategy is "channel", it takes "tensor" or "attn_head"" for the first check that fails; empty
/// where all hold. Anything that is no object lacks every key.
std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object);

}  // namespace kvcal
