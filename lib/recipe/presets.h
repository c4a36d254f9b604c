#pragma once

#include "quant/quant_scheme.h"
#include "recipe/yaml_tree.h"

#include <string>

namespace kvcal {

/// The scheme that a preset's name, in any case, stands for: without targets, and its observers are
/// named only where the preset does. path is how messages call the node that holds the name. Throws
/// Error, with the nearest name, for one that is unknown or outside FP8.
QuantScheme read_preset(const YamlNode& name, const std::string& path);

}  // namespace kvcal
