#include "text/chat_template.h"

#include <array>

#include "core/file.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/python_str.h"

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

/// The value of tokenizer_config.json's chat_template: a template, or a list of named ones.
std::optional<std::string> default_template(const Json& found) {
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array())
    fail("key 'chat_template' is ", kind_of(found),
         ", expected a string or an array of named templates");
  std::string names;
  for (const Json& entry : found) {
    const std::string name = required_string(entry, "name");
    if (name == "default") return required_string(entry, "template");
    names += (names.empty() ? "" : ", ") + name;
  }
  fail("key 'chat_template' names the templates ", names, ", but none is 'default'");
}

}  // namespace

struct ChatTemplate::Program {
  jinja::SyntaxTree tree;
  TemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::string_view source, TemplateLimits limits) {
  in_context("chat template", [&] {
    if (source.size() > limits.max_template_bytes)
      fail(source.size(), " bytes, the limit is ", limits.max_template_bytes);
    if (!jinja::is_valid_utf8(source)) fail("not valid UTF-8");
    program_ = std::make_unique<Program>(Program{jinja::parse(source), limits});
  });
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Json& variables, const TemplateClock& clock) const {
  return in_context("chat template", [&] {
    jinja::Run run(program_->limits);
    if (!variables.is_object())
      fail("the variables are ", kind_of(variables), ", expected an object");
    const jinja::Value values = jinja::from_json(run, variables);
    jinja::Interpreter interpreter(program_->tree, run, values.as<jinja::Dict>(),
                                   clock ? clock : local_time);
    try {
      return interpreter.render();
    } catch (Error& error) {
      error.add_context("line " + std::to_string(interpreter.line()));
      throw;
    }
  });
}

std::optional<ChatFormat> ChatFormat::from_folder(const std::filesystem::path& folder) {
  const auto read_json = [&](const char* name) -> Json {
    if (!fs::exists(folder / name)) return Json::object();
    return in_context((folder / name).string(), [&] {
      Json json = parse_json(read_text(folder / name));
      if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
      return json;
    });
  };
  const Json config = read_json("tokenizer_config.json");
  const Json special_tokens = read_json("special_tokens_map.json");

  std::optional<std::string> source;
  std::filesystem::path place = folder / "chat_template.jinja";
  if (fs::exists(place)) {
    source = read_text(place, TemplateLimits{}.max_template_bytes);
  } else if (const Json* found = find_field(config, "chat_template")) {
    place = folder / "tokenizer_config.json";
    source = in_context(place.string(), [&] { return default_template(*found); });
  }
  if (!source) return std::nullopt;

  // transformers takes the legacy map over the configuration only where that lists no added tokens.
  Json variables = Json::object();
  add_special_tokens(variables, config, true);
  add_special_tokens(variables, special_tokens,
                     find_field(config, "added_tokens_decoder") == nullptr);
  return in_context(place.string(),
                    [&] { return ChatFormat(ChatTemplate(*source), std::move(variables)); });
}

ChatFormat::ChatFormat(ChatTemplate chat_template, Json variables)
    : template_(std::move(chat_template)), variables_(std::move(variables)) {}

std::string ChatFormat::render(const Json& messages, bool add_generation_prompt, const Json& more,
                               const TemplateClock& clock) const {
  Json variables = variables_;
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  if (more.is_object())
    for (const auto& [key, value] : more.items()) variables[key] = value;
  return template_.render(variables, clock);
}

}  // namespace kvcal
