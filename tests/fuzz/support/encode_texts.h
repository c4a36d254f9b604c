#pragma once

#include "tokenizers/tokenizer.h"

namespace kvcal::fuzz {

/// Encodes a few texts of all kinds and what follows the tokenizer in the input, and decodes what
/// came of them; ids are those of the vocabulary. Texts that are refused are told by Error.
void encode_texts(const Tokenizer& tokenizer, std::string_view more);

}  // namespace kvcal::fuzz
