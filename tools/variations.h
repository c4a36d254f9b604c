#pragma once

#include <string>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// What sets a family apart from Llama, in short words derived from its descriptor's fields. Where
/// config.json decides, the word says "optional". Empty for what is as in Llama: RMS norm before
/// attention and MLP, grouped queries, rotary halves, a gated MLP, Q, K and V projected apart.
std::vector<std::string> variation_words(const Architecture& architecture);

/// "a, b, c", or nothing for none.
std::string joined_words(const std::vector<std::string>& words);

}  // namespace kvcal
