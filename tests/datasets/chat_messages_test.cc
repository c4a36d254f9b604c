
#include "core/error.h"
#include "datasets/chat_template.h"
#include "datasets/dataset_reader.h"
#include "jinja/syntax.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

ContentFormat format_of(const std::string& source) {
  return content_format_of(jinja::parse(source));
}

Json served(const std::string& messages, ContentFormat format = ContentFormat::kString) {
  return served_messages(parse_json(messages), format);
}

std::string message_of(const std::string& messages) {
  try {
    served(messages);
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
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
  CHECK(in_loop("{% set content = m.content %}{% for p in content %}{{ p }}{% endfor %}") ==
        ContentFormat::kParts);
}

TEST_CASE("chat messages: a template takes parts where a macro loops over what it gets") {
  const auto with_macro = [](const std::string& parameter, const std::string& call) {
    return format_of("{% macro show(n, " + parameter + ") %}{% for p in " + parameter +
                     " %}{{ p }}{% endfor %}{% endmacro %}{% for m in messages %}{{ " + call +
                     " }}{% endfor %}");
  };
  CHECK(with_macro("content", "show(1, m.content)") == ContentFormat::kParts);
  CHECK(with_macro("value", "show(1, m['content'])") == ContentFormat::kParts);
  CHECK(with_macro("value", "show(1, value=m.content|list)") == ContentFormat::kParts);
  CHECK(with_macro("value", "show(m.content, [])") == ContentFormat::kString);
  CHECK(with_macro("content", "show(1, m.tool_calls)") == ContentFormat::kString);
  CHECK(with_macro("value", "other(1, m.content)") == ContentFormat::kString);
}

TEST_CASE("chat messages: a template takes parts of messages that a namespace holds") {
  const auto in = [](const std::string& set) {
    return format_of(set +
                     "{% for m in ns.rest %}{% for p in m.content %}{{ p }}{% endfor %}"
                     "{% endfor %}");
  };
  CHECK(in("{% set ns = namespace(rest=messages) %}") == ContentFormat::kParts);
  CHECK(in("{% set ns = namespace(rest=[]) %}{% set ns.rest = messages[1:] %}") ==
        ContentFormat::kParts);
  CHECK(in("{% set ns = namespace(rest=[], other=messages) %}") == ContentFormat::kString);
}

TEST_CASE("chat messages: parts become the string that a template reads") {
  const std::string parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "Hi"}, "you", {"type": "image"}]}])";
  CHECK(served(parts).at(0).at("content") == "Hi\nyou");
  CHECK(served(parts, ContentFormat::kParts).at(0).at("content") ==
        parse_json(R"([{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"},
                       {"type": "image"}])"));
  CHECK(served(R"([{"role": "assistant", "content": null, "tool_calls": []}])").at(0) ==
        Json{{"role", "assistant"}, {"content", ""}});
  CHECK(message_of(R"([{"role": "user", "content": [{"type": "drawing"}]}])") ==
        "messages[0]: a part of content has the type 'drawing', expected text or one of the types "
        "of media");
  CHECK(message_of(R"([{"role": "user", "content": [7]}])") ==
        "messages[0]: a part of content is an integer, expected an object");
}

TEST_CASE("chat messages: a template that takes parts gets them of every content") {
  const Json text = parse_json(R"([{"type": "text", "text": "a"}])");
  const auto content_of = [](const std::string& message) {
    return served("[" + message + "]", ContentFormat::kParts).at(0).at("content");
  };
  CHECK(content_of(R"({"role": "user", "content": "a"})") == text);
  for (const char* part :
       {R"({"type": "input_text", "text": "a"})", R"({"type": "output_text", "text": "a"})",
        R"({"type": "refusal", "refusal": "a"})", R"({"type": "thinking", "thinking": "a"})",
        R"({"text": "a"})"})
    CHECK(content_of(R"({"role": "user", "content": [)" + std::string(part) + "]}") == text);
  CHECK(content_of(R"({"role": "assistant", "content": null})") == Json::array());
  CHECK(content_of(R"({"role": "user", "content": [{"type": "text", "text": null}]})") ==
        Json::array());
  CHECK(content_of(R"({"role": "tool", "content": [{"type": "text", "text": "a"}, "b"]})") ==
        "a\nb");
  const Json reference =
      parse_json(R"([{"type": "tool_reference", "name": "add"}, {"type": "text", "text": "b"}])");
  CHECK(content_of(Json{{"role", "tool"}, {"content", reference}}.dump()) == reference);
}

TEST_CASE("chat messages: a role has its keys, and reasoning under both names") {
  const auto keys_of = [](const std::string& role) {
    std::string keys;
    const Json message =
        served(R"([{"role": ")" + role +
               R"(", "content": "", "name": "n", "task": "t", "weight": 1,)"
               R"("tool_calls": [{"function": {"name": "f"}}], "tool_call_id": "i", "tools": [],)"
               R"("reasoning_content": "r"}])")
            .at(0);
    for (const auto& item : message.items()) keys += item.key() + " ";
    return keys;
  };
  CHECK(keys_of("user") == "role content name task ");
  CHECK(keys_of("assistant") == "role content tool_calls reasoning reasoning_content name task ");
  CHECK(keys_of("tool") == "role content name task tool_call_id ");
  CHECK(keys_of("developer") == "role content name task tools ");
  const Json both = served(
      R"([{"role": "assistant", "content": "", "reasoning": "a", "reasoning_content": "b"}])");
  CHECK(both.at(0).at("reasoning_content") == "a");
  CHECK(served(R"([{"role": "user", "content": "", "name": 7}])").at(0).contains("name") == false);
}

TEST_CASE("chat messages: developers speak as the system where a template does not know them") {
  const Json messages = parse_json(
      R"([{"role": "user", "content": "hi"}, {"role": "system", "content": "Be kind."},
          {"role": "developer", "content": ["Be", "brief."], "tools": []}])");
  const auto served_by = [&](ContentFormat format, bool has_developers) {
    return served_messages(messages, format, has_developers);
  };
  CHECK(served_by(ContentFormat::kString, true).at(2).at("role") == "developer");
  for (const ContentFormat format : {ContentFormat::kString, ContentFormat::kParts}) {
    const Json one = served_by(format, false);
    CHECK(one.size() == 2);
    CHECK(one.at(0) == Json{{"role", "system"}, {"content", "Be kind.\n\nBe\nbrief."}});
    CHECK(one.at(1).at("role") == "user");
  }
  const Json first =
      parse_json(R"([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}])");
  CHECK(served_messages(first, ContentFormat::kParts, false).at(0) ==
        parse_json(R"({"role": "system", "content": [{"type": "text", "text": "a"}]})"));
  CHECK(ChatTemplate("{{ messages }}").served(first).at(0).at("role") == "system");
  CHECK(ChatTemplate("{% if messages[0].role == 'developer' %}{% endif %}")
            .served(first)
            .at(0)
            .at("role") == "developer");
}

TEST_CASE("chat messages: tools have the keys of a request") {
  CHECK(
      served_tools(
          parse_json(
              R"([{"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "return": {}}, "id": 1},
                {"type": "function", "function": {"name": "g", "strict": true}}, {"name": "h"}])"))
          .dump() ==
      R"([{"type":"function","function":{"name":"f","description":null,"parameters":{"b":1,"a":2}}},)"
      R"({"type":"function","function":{"name":"g","description":null,"parameters":null,"strict":true}},)"
      R"({"name":"h"}])");
  CHECK(served_tools(nullptr).is_null());
}

TEST_CASE("chat messages: what a server does not pass is found where the template would read it") {
  const auto first = [](const std::string& message, const std::string& source) {
    return first_unserved(parse_json("[" + message + "]"), ChatTemplate(source).keys());
  };
  const std::string thinking = R"({"role": "assistant", "content": "a", "thinking": "hm"})";
  CHECK(first(thinking, "{{ messages[0].thinking }}") ==
        "messages[0] of role 'assistant' has the key 'thinking'");
  CHECK(first(thinking, "{{ messages[0]['thinking'] }}") ==
        "messages[0] of role 'assistant' has the key 'thinking'");
  CHECK(first(thinking, "{{ messages[0].content }}") == "");
  CHECK(first(R"({"role": "user", "content": "", "tool_calls": [1]})",
              "{{ messages[0].tool_calls }}") ==
        "messages[0] of role 'user' has the key 'tool_calls'");
  const auto call = [&](const std::string& arguments) {
    return first(R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f",)"
                 R"("arguments": )" +
                     arguments + "}}]}",
                 "");
  };
  CHECK(call(R"("{\"a\": 1}")") == "");
  CHECK(call(R"("")") == "");
  CHECK(call("{}") == "");
  CHECK(call(R"("{a}")") == "messages[0] calls a tool with arguments that are no JSON object");
  CHECK(call("[1]") == "messages[0] calls a tool with arguments that are no JSON object");
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
  for (const char* none : {R"("{a}")", R"("[1]")", "[1]", "null", "7"})
    CHECK(arguments_of(none) == Json::object());
  const Json call =
      served(
          R"([{"role": "assistant", "content": "", "tool_calls": [{"index": 0, "type": "function",
           "id": "i", "function": {"name": "f", "arguments": "{}"}}]}])")
          .at(0)
          .at("tool_calls");
  CHECK(call.dump() == R"([{"id":"i","function":{"arguments":{},"name":"f"},"type":"function"}])");
  const Json flat = served(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": "{}"}]}])");
  CHECK(flat.at(0).at("tool_calls").dump() == R"([{"name":"f","arguments":{}}])");
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
