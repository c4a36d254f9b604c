#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "datasets/chat_messages.h"
#include "datasets/record_columns.h"
#include "jinja/run.h"

namespace kvcal {

/// Local time now, for strftime_now; none means the system's.
using TemplateClock = std::function<std::tm()>;

/// A chat template: the part of Jinja2 that published templates use, rendered exactly as
/// transformers does (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loopcontrols). It
/// runs nothing else.
class ChatTemplate {
 public:
  /// Parses source. Throws Error with line and what was found.
  explicit ChatTemplate(std::string_view source, TemplateLimits limits = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The rendered text. variables: an object with `messages`, `add_generation_prompt`, `bos_token`,
  /// `eos_token`, `tools`, … as transformers passes them. Throws Error (line, cause;
  /// raise_exception's own message).
  std::string render(const Json& variables, const TemplateClock& clock = {}) const;
  /// Messages as a server passes them to this template (served_messages).
  Json served(const Json& messages) const;
  ContentFormat content_format() const;
  /// Keys of objects that the template names.
  const std::set<std::string, std::less<>>& keys() const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
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
