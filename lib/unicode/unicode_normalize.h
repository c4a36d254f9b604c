#pragma once

#include <string>
#include <string_view>

namespace kvcal::unicode {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

/// text (valid UTF-8) in a normalization form, with the tables of the `tokenizers` library: code
/// points that are newer than its Unicode 9 stay as they are.
std::string normalize(std::string_view text, Form form);

/// End of the extended grapheme cluster that starts at text[at].
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace kvcal::unicode
