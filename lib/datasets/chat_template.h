#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/json.h"
#include "datasets/record_columns.h"
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

/// Local time now, for strftime_now; none means the system's.
using TemplateClock = std::function<std::tm()>;

/// A chat template: the part of Jinja2 that published templates use, rendered exactly as
/// transformers does (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loopcontrols). It
/// runs nothing else.
class ChatTemplate {
 public:
  /// Parses source. Throws Error with line and what was found.
  explicit ChatTemplate(std::string_view source, TemplateLimits limits = {});

  /// The rendered text. variables: an object with `messages`, `add_generation_prompt`, `bos_token`,
  /// `eos_token`, `tools`, … as transformers passes them. Throws Error (line, cause;
  /// raise_exception's own message).
  std::string render(const Json& variables, const TemplateClock& clock = {}) const;
  /// Messages as a server passes them to this template (served_messages).
  Json served(const Json& messages) const {
    return served_messages(messages, content_format_, has_developers_);
  }
  /// Keys of objects that the template names.
  const std::set<std::string, std::less<>>& keys() const { return keys_; }

 private:
  jinja::SyntaxTree tree_;
  TemplateLimits limits_;
  bool has_developers_ = false;  ///< Source: vLLM's rule
  ContentFormat content_format_ = ContentFormat::kString;
  std::set<std::string, std::less<>> keys_;
};

/// A model folder's special tokens, {"bos_token": text, …}: bos_token, eos_token, pad_token,
/// unk_token and any other *_token of tokenizer_config.json and special_tokens_map.json.
Json special_token_texts(const std::filesystem::path& folder);

/// A model folder's template with its special tokens ready as variables.
class ChatFormat {
 public:
  /// Reads chat_template.jinja with additional_chat_templates/, else tokenizer_config.json's
  /// chat_template, else that of chat_template.json (from before chat_template.jinja); the last two
  /// hold a string, a list of named templates or an object of them. Of named ones "default" is
  /// taken, and "tool_use" where there are tools. nullopt where the folder has none, and options
  /// name no file.
  static std::optional<ChatFormat> from_folder(const std::filesystem::path& folder,
                                               const ChatOptions& options = {});

  /// messages: an array of {"role", "content", …}, which are passed as a server does
  /// (served_messages), and so are tools. `tools` and `documents` are none, as transformers passes
  /// them; more: an object of further variables, such as `tools` or `date_string`.
  std::string render(const Json& messages, bool add_generation_prompt, const Json& more = {},
                     const TemplateClock& clock = {}) const;
  /// The same of messages passed as they are, as apply_chat_template of transformers does.
  std::string render_as_given(const Json& messages, bool add_generation_prompt,
                              const Json& more = {}) const;
  /// What rendering leaves out of messages although the template would read it; empty: nothing.
  std::string first_unserved(const Json& messages) const;
  /// The template's text.
  const std::string& source() const { return source_; }

 private:
  ChatFormat(std::string source, std::optional<std::string> tool_use, Json variables);
  Json variables(bool add_generation_prompt) const;
  std::string source_;
  ChatTemplate template_;
  std::optional<std::string> tool_use_;  ///< source, parsed when it is wanted
  Json variables_;
};

}  // namespace kvcal
