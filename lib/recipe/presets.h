#pragma once

#include "quant/quant_scheme.h"
#include "recipe/weight_scheme.h"
#include "recipe/yaml_tree.h"

#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Scheme of a preset, by name in any case: without targets, and with observers only where the
/// preset names them. path: the name's path, for messages. Throws Error, with the nearest name, for
/// a preset that is unknown or not FP8.
QuantScheme read_preset(const YamlNode& name, const std::string& path);

/// Names of the presets that recipes may have and that quantize anything.
std::vector<std::string> preset_names();

/// Whether a preset, also one that recipes may not have, has this name, in any case.
bool is_preset(std::string_view name);

}  // namespace kvcal
