#pragma once

#include <cstdint>

#include "core/json.h"
#include "jinja/syntax.h"

namespace kvcal {

/// What a template reads from a message's "content".
enum class ContentFormat : uint8_t {
  kString,  ///< a string: of parts the texts, joined by line breaks
  kParts    ///< parts, {"type": "text", "text": …}, over which it loops, or a string
};

/// kParts where the template loops over a message's content. Source: vLLM's `auto` of
/// --chat-template-content-format.
ContentFormat content_format_of(const jinja::SyntaxTree& tree);

/// Messages as a server passes them to a template: of calls of tools the arguments that are JSON
/// text become objects, a list of no calls goes, parts become the string that the template
/// reads, and no content becomes an empty one. Source: vLLM's chat parsing. Throws Error naming
/// message and what was found for arguments that are no JSON.
Json served_messages(Json messages, ContentFormat format);

/// The texts of a conversation, one after the other with an empty line between, for a model without
/// a template.
std::string joined_texts(const Json& messages);

/// The first message whose text the rendered conversation has no line of; -1: there is none. A
/// template may drop what it does not know, such as a role, and nobody would notice.
int64_t first_unrendered(const Json& messages, std::string_view rendered);

}  // namespace kvcal
