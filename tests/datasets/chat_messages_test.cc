#include "datasets/chat_messages.h"

#include "core/error.h"
#include "datasets/chat_template.h"
#include "datasets/record_source.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

ContentFormat format_of(const std::string& source) {
  return ChatTemplate(source).content_format();
}

Json served(const std::string& messages, ContentFormat format = ContentFormat::kString) {
  return served_messages(parse_json(messages), format);
}

}  // namespace

TEST_CASE("chat messages: a template takes parts where it loops over a message's content") {
  const auto in_loop = [](const std::string& body) {
    return format_of("{% for m in messages %}" + body + "{% endfor %}");
  };
  CHECK(in_loop("{{ m.content }}") == ContentFormat::kString);
  CHECK(in_loop("{% for p in m.content %}{{ p.text }}{% endfor %}") == ContentFormat::kParts);
  CHECK(in_loop("{% for p in m['content'] %}{{ p.text }}{% endfor %}") == ContentFormat::kParts);
  CHECK(in_loop("{% for p in m['content'] | selectattr('type', 'equalto', 'text') %}{{ p }}"
                "{% endfor %}") == ContentFormat::kParts);
  CHECK(in_loop("{% for c in m.tool_calls %}{{ c }}{% endfor %}") == ContentFormat::kString);
  CHECK(format_of("{% set rest = messages[1:] %}{% for m in rest %}"
                  "{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}") ==
        ContentFormat::kParts);
  CHECK(format_of("{% for m in others %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}") ==
        ContentFormat::kString);
  CHECK(format_of("{% macro show(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}"
                  "{% for m in messages %}{{ show(m.content) }}{% endfor %}") ==
        ContentFormat::kParts);
}

TEST_CASE("chat messages: parts become the string that a template reads") {
  const std::string parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "Hi"}, "you", {"type": "image"}]}])";
  CHECK(served(parts).at(0).at("content") == "Hi\nyou");
  CHECK(served(parts, ContentFormat::kParts) == parse_json(parts));
  CHECK(served(R"([{"role": "assistant", "content": null, "tool_calls": []}])").at(0) ==
        Json{{"role", "assistant"}, {"content", ""}});
}

TEST_CASE("chat messages: arguments of calls are parsed") {
  const auto arguments_of = [](const std::string& text) {
    return served(R"([{"role": "assistant", "content": "", "tool_calls": [{"type": "function",)"
                  R"("function": {"name": "mul", "arguments": )" +
                  text + "}}]}]")
        .at(0)
        .at("tool_calls")
        .at(0)
        .at("function")
        .at("arguments");
  };
  CHECK(arguments_of(R"("{\"a\": 3, \"b\": [1]}")") == parse_json(R"({"a": 3, "b": [1]})"));
  CHECK(arguments_of(R"({"a": 3})") == parse_json(R"({"a": 3})"));
  CHECK(arguments_of(R"("")") == Json::object());
  try {
    arguments_of(R"("{a}")");
    FAIL("no JSON was taken");
  } catch (const Error& error) {
    CHECK(error.message().starts_with(
        "messages[0]: the arguments of a tool call are text, which is read as JSON: "));
  }
}

TEST_CASE("chat messages: what a template leaves out is found by its lines") {
  const Json messages = parse_json(
      R"([{"role": "system", "content": "Be brief.\nAlways."}, {"role": "user", "content": "  Hi "},
          {"role": "assistant", "content": null}, {"role": "tool", "content": "54"}])");
  CHECK(first_unrendered(messages, "Be brief. Hi 54") == -1);
  CHECK(first_unrendered(messages, "Hi 54") == 0);
  CHECK(first_unrendered(messages, "Always. Hi") == 3);
  CHECK(joined_texts(messages) == "Be brief.\nAlways.\n\n  Hi \n\n54");
}

TEST_CASE("chat format: a record's tools and a caller's variables reach the template") {
  const Json tools = parse_json(R"([{"type": "function", "function": {"name": "mul"}}])");
  const auto dataset_line =
      R"({"messages": [{"role": "user", "content": "hi"}], "tools": "[{\"type\": \"function\", \"function\": {\"name\": \"mul\"}}]", "documents": [], "chat_template_kwargs": {"enable_thinking": false}})";
  const Record record = to_record(parse_json(dataset_line), "here");
  CHECK(record.variables == Json{{"tools", tools}, {"enable_thinking", false}});
}
