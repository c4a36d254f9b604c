#pragma once

#include <string>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// Short words for the ways in which a family differs from Llama (RMS norm before attention and
/// MLP, grouped queries, rotary halves, a gated MLP, Q, K and V projected apart), derived from its
/// descriptor's fields. Where config.json decides, the word says "optional".
std::vector<std::string> variation_words(const Architecture& architecture);

}  // namespace kvcal
