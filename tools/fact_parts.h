#pragma once

#include <string>
#include <vector>

#include "model_facts.h"

namespace kvcal {

// Parts of model_facts, a file each.
using Facts = std::vector<Fact>;

/// Which layers attend, and what the others do instead.
void add_mixers(Facts& facts, const ModelConfig& config);
/// Of layers that attend.
void add_positions(Facts& facts, const ModelConfig& config);
void add_windows(Facts& facts, const ModelConfig& config);

std::string text_of(int64_t value);
/// "in layers 0-4", "in all layers"
std::string layers_text(const std::vector<int64_t>& layers, const ModelConfig& config);

}  // namespace kvcal
