#include "datasets/chat_template.h"

#include <utility>
#include <vector>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "jinja/interpreter.h"

namespace kvcal {
namespace {

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) fail("the system has no local time");
  return local;
}

/// A special token's text: "content" of an object, or the string itself; nothing for other values.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  return optional_string(value, "content");
}

void add_special_tokens(Json& variables, const Json& source, bool replaces) {
  if (!source.is_object()) return;
  for (const auto& [key, value] : source.items()) {
    if (!key.ends_with("_token") || (variables.contains(key) && !replaces)) continue;
    if (const auto text = token_text(value)) variables[key] = *text;
  }
}

struct NamedTemplates {
  std::filesystem::path place;
  std::string source;
  std::optional<std::string> tool_use;
};

std::string text_of(const Json& value, std::string_view what) {
  if (!value.is_string()) fail(what, " is ", kind_of(value), ", expected a string");
  return value.get<std::string>();
}

/// The value of a "chat_template": a template, or named ones.
NamedTemplates named_templates(const Json& found) {
  if (found.is_string()) return {{}, found.get<std::string>(), {}};
  std::vector<std::pair<std::string, std::string>> named;
  if (found.is_array()) {
    for (const Json& entry : found)
      named.emplace_back(required_string(entry, "name"), required_string(entry, "template"));
  } else if (found.is_object()) {
    for (const auto& [name, source] : found.items())
      named.emplace_back(name, text_of(source, "template '" + name.substr(0, 40) + "'"));
  } else {
    fail("key 'chat_template' is ", kind_of(found),
         ", expected a string or an array of named templates");
  }
  NamedTemplates result;
  bool has_default = false;
  for (const auto& [name, source] : named) {
    has_default |= name == "default";
    if (name == "default") result.source = source;
    if (name == "tool_use") result.tool_use = source;
  }
  if (!has_default)
    fail("key 'chat_template' names the templates ",
         join(named, ", ", &std::pair<std::string, std::string>::first), ", but none is 'default'");
  return result;
}

Json read_object(const std::filesystem::path& path) {
  if (!is_there(path)) return Json::object();
  return in_context(path.string(), [&] {
    Json json = parse_model_json(read_text(path, kSmallFileLimits.max_bytes));
    if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
    return json;
  });
}

std::optional<NamedTemplates> find_templates(const std::filesystem::path& folder,
                                             const Json& config) {
  const size_t limit = TemplateLimits{}.max_template_bytes;
  if (const fs::path file = folder / "chat_template.jinja"; is_there(file)) {
    NamedTemplates found{file, read_text(file, limit), {}};
    const fs::path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
    if (is_there(tool_use)) found.tool_use = read_text(tool_use, limit);
    return found;
  }
  const auto read_field = [&](const char* file,
                              const Json& object) -> std::optional<NamedTemplates> {
    const Json* field = find_field(object, "chat_template");
    if (!field) return std::nullopt;
    NamedTemplates found =
        in_context((folder / file).string(), [&] { return named_templates(*field); });
    found.place = folder / file;
    return found;
  };
  if (auto found = read_field("tokenizer_config.json", config)) return found;
  return read_field("chat_template.json", read_object(folder / "chat_template.json"));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, TemplateLimits limits) : limits_(limits) {
  in_context("chat template", [&] {
    if (source.size() > limits.max_template_bytes)
      fail(source.size(), " bytes, the limit is ", limits.max_template_bytes);
    if (!utf8::is_valid(source)) fail("not valid UTF-8");
    has_developers_ =
        source.find("\"developer\"") != source.npos || source.find("'developer'") != source.npos;
    tree_ = jinja::parse(source);
    content_format_ = content_format_of(tree_);
    keys_ = keys_named_in(tree_);
  });
}

std::string ChatTemplate::render(const Json& variables, const TemplateClock& clock) const {
  return in_context("chat template", [&] {
    jinja::Run run(limits_);
    if (!variables.is_object())
      fail("the variables are ", kind_of(variables), ", expected an object");
    const jinja::Value values = jinja::from_json(run, variables);
    jinja::Interpreter interpreter(tree_, run, values.as<jinja::Dict>(),
                                   clock ? clock : local_time);
    try {
      return interpreter.render();
    } catch (Error& error) {
      error.add_context("line " + std::to_string(interpreter.line()));
      throw;
    }
  });
}

Json special_token_texts(const std::filesystem::path& folder) {
  const Json config = read_object(folder / "tokenizer_config.json");
  const Json special_tokens = read_object(folder / "special_tokens_map.json");
  // transformers takes the legacy map over the configuration only where that lists no added tokens.
  Json tokens = Json::object();
  add_special_tokens(tokens, config, true);
  add_special_tokens(tokens, special_tokens, find_field(config, "added_tokens_decoder") == nullptr);
  return tokens;
}

std::optional<ChatFormat> ChatFormat::from_folder(const std::filesystem::path& folder,
                                                  const ChatOptions& options) {
  std::optional<NamedTemplates> found;
  if (!options.template_file.empty())
    found = {
        options.template_file,
        in_context(
            "--chat-template",
            [&] { return read_text(options.template_file, TemplateLimits{}.max_template_bytes); }),
        {}};
  else
    found = find_templates(folder, read_object(folder / "tokenizer_config.json"));
  if (!found) return std::nullopt;
  Json variables = special_token_texts(folder);
  if (options.variables.is_object()) variables.update(options.variables);
  return in_context(found->place.string(), [&] {
    return ChatFormat(std::move(found->source), std::move(found->tool_use), std::move(variables));
  });
}

ChatFormat::ChatFormat(std::string source, std::optional<std::string> tool_use, Json variables)
    : source_(std::move(source)),
      template_(source_),
      tool_use_(std::move(tool_use)),
      variables_(std::move(variables)) {}

Json ChatFormat::variables(bool add_generation_prompt) const {
  Json variables = {
      {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", add_generation_prompt}};
  variables.update(variables_);
  return variables;
}

std::string ChatFormat::render(const Json& messages, bool add_generation_prompt, const Json& more,
                               const TemplateClock& clock) const {
  Json all = variables(add_generation_prompt);
  if (more.is_object()) all.update(more);
  all["tools"] = served_tools(all["tools"]);
  const auto rendered = [&](const ChatTemplate& chosen) {
    all["messages"] = chosen.served(messages);
    return chosen.render(all, clock);
  };
  if (!tool_use_ || all["tools"].is_null()) return rendered(template_);
  return in_context("template 'tool_use'", [&] { return rendered(ChatTemplate(*tool_use_)); });
}

std::string ChatFormat::render_as_given(const Json& messages, bool add_generation_prompt,
                                        const Json& more) const {
  Json all = variables(add_generation_prompt);
  if (more.is_object()) all.update(more);
  all["messages"] = messages;
  return template_.render(all);
}

std::string ChatFormat::first_unserved(const Json& messages) const {
  return kvcal::first_unserved(messages, template_.keys());
}

}  // namespace kvcal
