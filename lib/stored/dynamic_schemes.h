#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "stored/stored_format.h"

namespace kvcal {

/// Schemes by GPTQModel's key "dynamic", an object of patterns in order: the first that matches the
/// beginning of a module's name counts. "-:" before a pattern leaves modules in 16 bits, "+:" or
/// nothing overrides keys of the config for them. Throws Error for patterns and overrides that are
/// not read. Source: GPTQModel 7.7 `_resolve_dynamic_override`, vLLM 0.33 `get_dynamic_override`.
///
/// dynamic: nullptr: none. except: names of modules that stay in 16 bits. rest: of modules that no
/// pattern matches. overridden: the scheme of an entry.
ModuleSchemes dynamic_schemes(const Json* dynamic, std::vector<std::string> except,
                              ModuleScheme rest,
                              const std::function<ModuleScheme(const Json& entry)>& overridden);

}  // namespace kvcal
