#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "datasets/chat_template.h"

namespace kvcal {
namespace {

using jinja::Expression;
using jinja::ExpressionKind;
using jinja::Statement;
using jinja::StatementKind;
using Names = std::set<std::string, std::less<>>;

/// Whether the expression is this text itself.
bool is_text(const Expression* expression, std::string_view text) {
  if (!expression || expression->kind != ExpressionKind::kConstant ||
      !expression->value.is_string())
    return false;
  jinja::Run run(TemplateLimits{});  // which counts what it reads
  return run.text_of(expression->value) == text;
}

/// A variable's name, or "namespace.attribute"; empty for other expressions.
std::string name_of(const Expression* expression) {
  if (!expression) return {};
  if (expression->kind == ExpressionKind::kName) return std::string(expression->text);
  if (expression->kind == ExpressionKind::kAttributeTarget)
    return std::string(expression->text) + "." + std::string(expression->attribute);
  if (expression->kind != ExpressionKind::kAttribute) return {};
  std::string owner = name_of(expression->items.at(0));
  return owner.empty() ? owner : owner + "." + std::string(expression->text);
}

/// What filters, tests and slices are applied to.
const Expression* source_of(const Expression* expression) {
  while (expression) {
    const bool is_slice = expression->kind == ExpressionKind::kItem && expression->items.at(1) &&
                          expression->items[1]->kind == ExpressionKind::kSlice;
    if (!is_slice && expression->kind != ExpressionKind::kFilter &&
        expression->kind != ExpressionKind::kTest)
      break;
    expression = expression->items.at(0);
  }
  return expression;
}

/// The variable whose "content" an expression reads; empty: it reads none.
std::string content_owner(const Expression* expression) {
  const Expression* member = source_of(expression);
  if (!member || member->items.empty()) return {};
  const bool is_content =
      member->kind == ExpressionKind::kAttribute
          ? member->text == "content"
          : member->kind == ExpressionKind::kItem && is_text(member->items.at(1), "content");
  return is_content ? name_of(member->items[0]) : std::string();
}

/// Names that `set` gives the values of variables, by these: targets, attributes of namespaces,
/// and those that `namespace(rest=messages)` makes.
std::multimap<std::string, std::string, std::less<>> aliases_of(const jinja::SyntaxTree& tree) {
  std::multimap<std::string, std::string, std::less<>> aliases;
  const auto add = [&](const Expression* value, std::string alias) {
    if (std::string name = name_of(source_of(value)); !name.empty())
      aliases.emplace(std::move(name), std::move(alias));
  };
  for (const auto& statement : tree.statements) {
    if (statement->kind != StatementKind::kSet) continue;
    const std::string target = name_of(statement->target);
    const Expression* value = statement->value;
    if (target.empty() || !value) continue;
    add(value, target);
    if (value->kind == ExpressionKind::kCall && name_of(value->items.at(0)) == "namespace")
      for (const auto& [key, given] : value->call.named)
        add(given, target + "." + std::string(key));
  }
  return aliases;
}

/// "messages" and the names that are set to it or to a part of it.
Names names_of_messages(const jinja::SyntaxTree& tree) {
  const auto aliases = aliases_of(tree);
  Names names{"messages"};
  std::vector<std::string> left{"messages"};
  while (!left.empty()) {
    const auto [first, last] = aliases.equal_range(left.back());
    left.pop_back();
    for (auto alias = first; alias != last; ++alias)
      if (names.insert(alias->second).second) left.push_back(alias->second);
  }
  return names;
}

bool is_loop(const Statement& statement) {
  return statement.kind == StatementKind::kFor && statement.target->kind == ExpressionKind::kName;
}

template <class Visit>
void for_each_loop_in(const jinja::Block& block, const Visit& visit) {
  for (const Statement* statement : block) {
    if (is_loop(*statement)) visit(*statement);
    // The body of a macro in a macro is visited as that one's.
    if (statement->kind == StatementKind::kMacro) continue;
    for_each_loop_in(statement->body, visit);
    for_each_loop_in(statement->otherwise, visit);
    for (const jinja::Branch& branch : statement->branches) for_each_loop_in(branch.body, visit);
  }
}

/// The parameters of macros that some call gives a message's content, by the macros' names.
class ContentParameters {
 public:
  ContentParameters(const jinja::SyntaxTree& tree, const Names& messages) : messages_(messages) {
    for (const auto& expression : tree.expressions)
      if (expression->kind == ExpressionKind::kCall)
        if (std::string callee = name_of(expression->items.at(0)); !callee.empty())
          calls_[std::move(callee)].push_back(&expression->call);
  }

  Names of(const Statement& macro) const {
    Names names;
    const auto found = calls_.find(macro.text);
    if (found == calls_.end()) return names;
    for (const jinja::CallSyntax* call : found->second) {
      for (size_t i = 0; i < std::min(call->positional.size(), macro.parameters.size()); ++i)
        if (is_content(call->positional[i])) names.emplace(macro.parameters[i].text);
      for (const auto& [key, value] : call->named)
        if (is_content(value)) names.emplace(key);
    }
    return names;
  }

  bool is_content(const Expression* expression) const {
    return messages_.contains(content_owner(expression));
  }

 private:
  const Names& messages_;
  std::map<std::string, std::vector<const jinja::CallSyntax*>, std::less<>> calls_;
};

}  // namespace

ContentFormat content_format_of(const jinja::SyntaxTree& tree) {
  const Names lists = names_of_messages(tree);
  Names messages;
  for (const auto& loop : tree.statements)
    if (is_loop(*loop) && lists.contains(name_of(source_of(loop->value))))
      messages.emplace(loop->target->text);
  const ContentParameters parameters(tree, messages);
  bool loops = false;
  std::set<const Statement*> in_macros;
  for (const auto& macro : tree.statements) {
    if (macro->kind != StatementKind::kMacro) continue;
    const Names own = parameters.of(*macro);
    for_each_loop_in(macro->body, [&](const Statement& loop) {
      in_macros.insert(&loop);
      loops = loops || own.contains(name_of(loop.value));
    });
  }
  // Outside of macros a variable of this name holds what its name says.
  for (const auto& loop : tree.statements)
    if (is_loop(*loop))
      loops = loops || parameters.is_content(loop->value) ||
              (name_of(loop->value) == "content" && !in_macros.contains(loop.get()));
  return loops ? ContentFormat::kParts : ContentFormat::kString;
}

std::set<std::string, std::less<>> keys_named_in(const jinja::SyntaxTree& tree) {
  constexpr size_t kLongestKey = 100;
  jinja::Run run(TemplateLimits{});
  Names keys;
  for (const auto& expression : tree.expressions) {
    std::string_view key;
    if (expression->kind == ExpressionKind::kAttribute) key = expression->text;
    if (expression->kind == ExpressionKind::kConstant && expression->value.is_string())
      key = run.text_of(expression->value);
    if (!key.empty() && key.size() <= kLongestKey) keys.emplace(key);
  }
  return keys;
}

namespace {

constexpr std::array<std::string_view, 8> kMedia{
    "image", "image_url", "input_image", "video", "video_url", "audio", "audio_url", "input_audio"};
constexpr std::string_view kToolReference = "tool_reference";

struct TextPart {
  std::string_view type, key;
};
constexpr std::array kTextParts{TextPart{"text", "text"}, TextPart{"input_text", "text"},
                                TextPart{"output_text", "text"}, TextPart{"refusal", "refusal"},
                                TextPart{"thinking", "thinking"}};

std::string type_of(const Json& part) {
  const Json* type = find_field(part, "type");
  if (!type) return "text";
  if (!type->is_string()) fail_kind("type", "a string", *type);
  return type->get<std::string>();
}

/// The text of a part; nothing where it has none, as media.
std::optional<std::string> text_of(const Json& part) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) fail("a part of content is ", kind_of(part), ", expected an object");
  const std::string type = type_of(part);
  if (std::ranges::find(kMedia, type) != kMedia.end()) return std::nullopt;
  if (type == kToolReference) return optional_string(part, "name");
  const auto known = std::ranges::find(kTextParts, type, &TextPart::type);
  if (known == kTextParts.end())
    fail("a part of content has the type '", type.substr(0, 40),
         "', expected text or one of the types of media");
  return optional_string(part, known->key);
}

/// A part as a template that takes parts gets it: of text its text alone, beside keys that do not
/// say what it is; null: none.
Json served_part(const Json& part) {
  const auto text = text_of(part);
  const bool is_text = part.is_string() || std::ranges::find(kTextParts, type_of(part),
                                                             &TextPart::type) != kTextParts.end();
  if (!is_text) return part;
  if (!text) return nullptr;
  Json served = {{"type", "text"}, {"text", *text}};
  if (part.is_object())
    for (const auto& [key, value] : part.items())
      if (key != "type" && key != "closed" &&
          std::ranges::find(kTextParts, key, &TextPart::key) == kTextParts.end())
        served[key] = value;
  return served;
}

/// The texts of parts, joined by line breaks; parts of other kinds have none.
std::string text_of_parts(const Json& parts) {
  std::string all;
  bool is_first = true;
  for (const Json& part : parts) {
    const auto text = text_of(part);
    if (!text) continue;
    if (!std::exchange(is_first, false)) all += '\n';
    all += *text;
  }
  return all;
}

Json served_content(const Json& message, const std::string& role, ContentFormat format) {
  const Json* found = find_field(message, "content");
  Json parts = Json::array();
  if (found && found->is_array())
    parts = *found;
  else if (found)
    parts.push_back(found->is_string() ? *found : Json(found->dump()));
  // Few templates loop over a tool's answer.
  const auto is_reference = [](const Json& part) {
    return part.is_object() && type_of(part) == kToolReference;
  };
  const bool is_answer = role == "tool" && std::ranges::none_of(parts, is_reference);
  if (format == ContentFormat::kString || is_answer) return text_of_parts(parts);
  Json served = Json::array();
  for (const Json& part : parts)
    if (Json own = served_part(part); !own.is_null()) served.push_back(std::move(own));
  return served;
}

/// The object that arguments are, or that their text holds; nothing where it holds none.
std::optional<Json> object_of(const Json& arguments) {
  if (arguments.is_object()) return arguments;
  if (!arguments.is_string()) return std::nullopt;
  const std::string& text = arguments.get_ref<const std::string&>();
  try {
    Json parsed = parse_json(text, {.max_bytes = text.size()});
    if (parsed.is_object()) return parsed;
  } catch (const Error&) {
  }
  return std::nullopt;
}

const Json& function_of(const Json& call) {
  const Json* function = find_field(call, "function");
  return function && function->is_object() ? *function : call;
}

void copy_keys(const Json& from, std::initializer_list<const char*> keys, Json& to) {
  for (const char* key : keys)
    if (const auto found = from.find(key); found != from.end()) to[key] = *found;
}

/// The order of keys is that of vLLM's types, which templates that print a call show.
Json served_call(const Json& call) {
  if (!call.is_object()) fail("a tool call is ", kind_of(call), ", expected an object");
  const Json& function = function_of(call);
  const Json* given = find_field(function, "arguments");
  Json arguments = (given ? object_of(*given) : std::nullopt).value_or(Json::object());
  if (&function == &call) {
    Json flat = call;
    flat["arguments"] = std::move(arguments);
    return flat;
  }
  Json served = Json::object();
  copy_keys(call, {"id"}, served);
  served["function"] = {{"arguments", std::move(arguments)}};
  copy_keys(function, {"name"}, served["function"]);
  copy_keys(call, {"type"}, served);
  return served;
}

/// Whether messages of a role have a key. Others do not reach a template.
bool is_served(std::string_view role, std::string_view key) {
  if (key == "role" || key == "content" || key == "name" || key == "task") return true;
  if (role == "assistant")
    return key == "tool_calls" || key == "reasoning" || key == "reasoning_content";
  return (role == "tool" && key == "tool_call_id") || (role == "developer" && key == "tools");
}

Json served_message(const Json& message, ContentFormat format) {
  const std::string role = required_string(message, "role");
  Json served = {{"role", role}, {"content", served_content(message, role, format)}};
  if (const Json* calls = find_field(message, "tool_calls");
      calls && calls->is_array() && !calls->empty() && is_served(role, "tool_calls"))
    for (const Json& call : *calls) served["tool_calls"].push_back(served_call(call));
  const Json* reasoning = find_field(message, "reasoning");
  if (!reasoning) reasoning = find_field(message, "reasoning_content");
  if (reasoning && is_served(role, "reasoning"))
    for (const char* key : {"reasoning", "reasoning_content"}) served[key] = *reasoning;
  for (const char* key : {"name", "task"})
    if (const Json* text = find_field(message, key); text && text->is_string()) served[key] = *text;
  for (const char* key : {"tool_call_id", "tools"})
    if (is_served(role, key)) copy_keys(message, {key}, served);
  return served;
}

/// Developers' messages as the system's, and all of these as one in front.
Json without_developers(Json messages) {
  std::string text;
  Json others = Json::array();
  bool is_in_front = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (message["role"] == "developer") {
      message["role"] = "system";
      message.erase("tools");
    }
    if (message["role"] != "system") {
      others.push_back(message);
      continue;
    }
    is_in_front = is_in_front && i == 0;
    const Json& content = message["content"];
    const std::string own =
        content.is_array() ? text_of_parts(content) : content.get<std::string>();
    if (!own.empty()) text += (text.empty() ? "" : "\n\n") + own;
  }
  if (is_in_front) return messages;
  others.insert(others.begin(), Json{{"role", "system"}, {"content", text}});
  return others;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (const std::string_view line = ascii_trimmed(text.substr(begin, end - begin)); !line.empty())
      lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

std::string content_text(const Json& message) {
  const Json* content = message.is_object() ? find_field(message, "content") : nullptr;
  if (!content) return {};
  if (content->is_array()) return text_of_parts(*content);
  return content->is_string() ? content->get<std::string>() : std::string();
}

}  // namespace

bool is_media(const Json& part) {
  return part.is_object() && std::ranges::find(kMedia, type_of(part)) != kMedia.end();
}

Json served_messages(const Json& messages, ContentFormat format, bool has_developers) {
  Json served = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    served.push_back(in_context("messages[" + std::to_string(i) + "]",
                                [&] { return served_message(messages[i], format); }));
  const bool is_converted = !has_developers && std::ranges::any_of(served, [](const Json& message) {
    return message.at("role") == "developer";
  });
  return is_converted ? without_developers(std::move(served)) : served;
}

Json served_tools(const Json& tools) {
  if (!tools.is_array()) return tools;
  Json all = Json::array();
  for (const Json& tool : tools) {
    const Json* function = tool.is_object() ? find_field(tool, "function") : nullptr;
    if (!function || !function->is_object()) {
      all.push_back(tool);
      continue;
    }
    Json served = {{"name", nullptr}, {"description", nullptr}, {"parameters", nullptr}};
    copy_keys(*function, {"name", "description", "parameters"}, served);
    for (const char* key : {"strict", "defer_loading"})
      if (const Json* value = find_field(*function, key)) served[key] = *value;
    all.push_back({{"type", tool.value("type", "function")}, {"function", std::move(served)}});
  }
  return all;
}

std::string first_unserved(const Json& messages,
                           const std::set<std::string, std::less<>>& template_keys) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string role = message.value("role", "");
    const std::string place = "messages[" + std::to_string(i) + "]";
    for (const auto& [key, value] : message.items())
      if (!value.is_null() && !is_served(role, key) && template_keys.contains(key))
        return place + " of role '" + role + "' has the key '" + key + "'";
    const Json* calls = find_field(message, "tool_calls");
    if (!calls || !calls->is_array()) continue;
    for (const Json& call : *calls) {
      const Json* arguments =
          call.is_object() ? find_field(function_of(call), "arguments") : nullptr;
      if (arguments && *arguments != "" && !object_of(*arguments))
        return place + " calls a tool with arguments that are no JSON object";
    }
  }
  return {};
}

std::string joined_texts(const Json& messages) {
  std::string all;
  for (const Json& message : messages)
    if (const std::string text = content_text(message); !text.empty())
      all += (all.empty() ? "" : "\n\n") + text;
  return all;
}

int64_t first_unrendered(const Json& messages, std::string_view rendered) {
  // Templates keep the order, so a message is looked for behind the one before it first.
  size_t behind = 0;
  const auto is_there = [&](std::string_view line) {
    const size_t found = rendered.find(line, behind);
    if (found == std::string_view::npos) return rendered.find(line) != std::string_view::npos;
    behind = found;
    return true;
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string text = content_text(messages[i]);
    const std::vector<std::string_view> lines = lines_of(text);
    if (!lines.empty() && std::ranges::none_of(lines, is_there)) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace kvcal
