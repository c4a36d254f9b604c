#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "jinja/syntax.h"

namespace kvcal {

/// What a template reads from a message's "content".
enum class ContentFormat : uint8_t {
  kString,  ///< a string: of parts the texts, joined by line breaks
  kParts    ///< parts, {"type": "text", "text": …}, over which it loops
};

/// kParts where the template loops over a message's content, also in a macro that gets it. Source:
/// vLLM 0.33's `auto` of --chat-template-content-format.
ContentFormat content_format_of(const jinja::SyntaxTree& tree);

/// Keys of objects that the template names, as attributes or as texts.
std::set<std::string, std::less<>> keys_named_in(const jinja::SyntaxTree& tree);

}  // namespace kvcal
