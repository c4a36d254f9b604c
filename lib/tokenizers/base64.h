#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvcal::tokenizers {

/// The bytes of base64 text (RFC 4648, padding not needed), or nullopt for other characters.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace kvcal::tokenizers
