#pragma once

#include <string>
#include <vector>

#include "inspect/properties.h"

namespace kvcal {

/// Adds which layers attend, and what the others do instead.
void add_mixers(Properties& properties, const ModelConfig& config);
/// Adds position encodings of the layers that attend.
void add_positions(Properties& properties, const ModelConfig& config);
/// Adds sliding windows of the layers that attend.
void add_windows(Properties& properties, const ModelConfig& config);

/// "in layers 0-4", "in all layers"
std::string layers_text(const std::vector<int64_t>& layers, const ModelConfig& config);

}  // namespace kvcal
