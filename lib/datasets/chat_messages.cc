#include "datasets/chat_messages.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/ascii.h"
#include "core/error.h"
#include "core/json_limits.h"
#include "jinja/run.h"

namespace kvcal {
namespace {

using jinja::Expression;
using jinja::ExpressionKind;
using jinja::StatementKind;

bool is_name(const Expression* expression, std::string_view name) {
  return expression && expression->kind == ExpressionKind::kName && expression->text == name;
}

/// The text of a constant of a template; empty for other constants.
std::string_view text_of(const jinja::Value& value) {
  jinja::Run run(TemplateLimits{});  // which counts what it reads
  return value.is_string() ? run.text_of(value) : std::string_view();
}

/// variable.key or variable['key'].
bool is_member(const Expression* expression, std::string_view variable, std::string_view key) {
  if (!expression || expression->items.empty() || !is_name(expression->items[0], variable))
    return false;
  if (expression->kind == ExpressionKind::kAttribute) return expression->text == key;
  if (expression->kind != ExpressionKind::kItem) return false;
  const Expression* index = expression->items.at(1);
  return index && index->kind == ExpressionKind::kConstant && text_of(index->value) == key;
}

/// The variable itself, or its member, through filters, tests and slices.
bool reads(const Expression* expression, std::string_view variable, std::string_view key) {
  if (!expression) return false;
  const bool is_slice = expression->kind == ExpressionKind::kItem && expression->items.at(1) &&
                        expression->items[1]->kind == ExpressionKind::kSlice;
  if (is_slice || expression->kind == ExpressionKind::kFilter ||
      expression->kind == ExpressionKind::kTest)
    return reads(expression->items.at(0), variable, key);
  return key.empty() ? is_name(expression, variable) : is_member(expression, variable, key);
}

/// "messages" and the names that are set to it or to a part of it.
std::vector<std::string_view> names_of_messages(const jinja::SyntaxTree& tree) {
  std::vector<std::string_view> names{"messages"};
  for (size_t i = 0; i < names.size(); ++i)
    for (const auto& statement : tree.statements) {
      if (statement->kind != StatementKind::kSet || !reads(statement->value, names[i], ""))
        continue;
      const Expression* target = statement->target;
      if (target->kind == ExpressionKind::kName &&
          std::ranges::find(names, target->text) == names.end())
        names.push_back(target->text);
    }
  return names;
}

/// The texts of parts, joined by line breaks; parts of other kinds have none.
std::string text_of_parts(const Json& parts) {
  std::string text;
  bool is_first = true;
  for (const Json& part : parts) {
    std::optional<std::string> own;
    if (part.is_string()) own = part.get<std::string>();
    if (part.is_object())
      for (const char* key : {"text", "refusal", "thinking"})
        if (const Json* value = find_field(part, key); value && value->is_string() && !own)
          own = value->get<std::string>();
    if (!own) continue;
    if (!is_first) text += '\n';
    is_first = false;
    text += *own;
  }
  return text;
}

void parse_arguments(Json& call) {
  if (!call.is_object()) return;
  const auto function = call.find("function");
  Json& holder = function != call.end() && function->is_object() ? *function : call;
  const auto arguments = holder.find("arguments");
  if (arguments == holder.end() || !arguments->is_string()) return;
  const std::string text = arguments->get<std::string>();
  if (ascii_trimmed(text).empty()) {
    *arguments = Json::object();
    return;
  }
  try {
    *arguments = parse_json(text, {.max_bytes = text.size()});
  } catch (const Error& error) {
    fail("the arguments of a tool call are text, which is read as JSON: ", error.message());
  }
}

void serve_calls(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  if (calls->empty()) {
    message.erase(calls);
    return;
  }
  for (Json& call : *calls) parse_arguments(call);
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

ContentFormat content_format_of(const jinja::SyntaxTree& tree) {
  const std::vector<std::string_view> messages = names_of_messages(tree);
  std::vector<std::string_view> message_names;
  const auto for_each_loop = [&](const auto& visit) {
    for (const auto& statement : tree.statements)
      if (statement->kind == StatementKind::kFor &&
          statement->target->kind == ExpressionKind::kName)
        visit(*statement);
  };
  for_each_loop([&](const jinja::Statement& loop) {
    if (std::ranges::any_of(messages, [&](auto name) { return reads(loop.value, name, ""); }))
      message_names.push_back(loop.target->text);
  });
  bool loops = false;
  for_each_loop([&](const jinja::Statement& loop) {
    // Macros get it under this name.
    loops = loops || is_name(loop.value, "content") ||
            std::ranges::any_of(message_names,
                                [&](auto name) { return reads(loop.value, name, "content"); });
  });
  return loops ? ContentFormat::kParts : ContentFormat::kString;
}

Json served_messages(Json messages, ContentFormat format) {
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (!message.is_object()) continue;
    in_context("messages[" + std::to_string(i) + "]", [&] { serve_calls(message); });
    Json& content = message["content"];
    if (content.is_null()) content = Json::array();
    if (format == ContentFormat::kString && content.is_array()) content = text_of_parts(content);
  }
  return messages;
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
