#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "core/json.h"
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

/// Whether a part of content is an image, audio or video.
bool is_media(const Json& part);

/// Messages as a server passes them to a template. Source: vLLM 0.33, from the types of its chat
/// requests to apply_chat_template.
/// - Content is a string of the texts of its parts, joined by line breaks, or parts, as the
///   template reads it; none is an empty one. A tool's answer is a string.
/// - Arguments of calls are objects: text is parsed, what is no JSON object is an empty one. A list
///   of no calls goes.
/// - `reasoning` and `reasoning_content` are both there where one is; of other keys only those that
///   a role has.
/// - Where the template does not know developers (has_developers), their messages are the
///   system's, and all of the system's are one in front.
/// Throws Error naming the message and what was found for a part of an unknown type.
Json served_messages(const Json& messages, ContentFormat format, bool has_developers = true);

/// Tools as a server passes them: the type, and of the function its name, description and
/// parameters, null where they are absent, and strict. What has no "function" is passed as it is.
Json served_tools(const Json& tools);

/// What of the messages served_messages leaves out although the template would read it:
/// "messages[1] of role 'assistant' has the key 'thinking'"; empty: nothing. template_keys: those
/// that the template names.
std::string first_unserved(const Json& messages,
                           const std::set<std::string, std::less<>>& template_keys);

/// The texts of a conversation, one after the other with an empty line between, for a model without
/// a template.
std::string joined_texts(const Json& messages);

/// The first message whose text the rendered conversation has no line of; -1: there is none. A
/// template may drop what it does not know, such as a role, and nobody would notice.
int64_t first_unrendered(const Json& messages, std::string_view rendered);

}  // namespace kvcal
