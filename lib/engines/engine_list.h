#pragma once

#include <string>

#include "core/json.h"

namespace kvcal {

// The serving engines, and what each of them reads, as `kvcal engines` prints it. model_type: of
// config.json; empty: all engines, without what they read.

Json engines_json(const std::string& model_type);
/// Lines for a terminal.
std::string engines_text(const std::string& model_type);
/// The table of docs/models.md, one row a model_type: the formats of which each engine uses the
/// scales.
std::string engines_markdown();

}  // namespace kvcal
