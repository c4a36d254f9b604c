#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "family/architecture.h"

namespace kvcal {

// The model families, wrappers and refused model types, as `kvcal families` prints them: as JSON,
// as lines for a terminal, and as the tables of docs/models.md.

Json families_json();
std::string families_text();
std::string families_markdown();

// The same for some model types of config.json: whether each runs, is a wrapper, is refused or is
// not known.

Json model_types_json(const std::vector<std::string>& model_types);
std::string model_types_text(const std::vector<std::string>& model_types);
std::string model_types_markdown(const std::vector<std::string>& model_types);

/// Short words for the ways in which a family differs from Llama (RMS norm before attention and
/// MLP, grouped queries, rotary halves, a gated MLP, Q, K and V projected apart), derived from its
/// descriptor's fields. Where config.json decides, the word says "optional".
std::vector<std::string> variation_words(const Architecture& architecture);

}  // namespace kvcal
