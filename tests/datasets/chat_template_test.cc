#include "datasets/chat_template.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// A model folder that goes away with the test.
class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / ("kvcal_chat_template_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

  std::string render(const std::string& messages = R"([{"role": "user", "content": "Hi"}])") const {
    return ChatFormat::from_folder(path_).value().render(parse_json(messages), true);
  }
  std::string error() const {
    try {
      ChatFormat::from_folder(path_);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("chat format: a folder without a template has none") {
  const Folder folder;
  CHECK_FALSE(ChatFormat::from_folder(folder.path()).has_value());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  CHECK_FALSE(ChatFormat::from_folder(folder.path()).has_value());
}

TEST_CASE("chat format: chat_template.jinja wins over tokenizer_config.json") {
  const Folder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config {{ messages[0].content }}"})");
  CHECK(folder.render() == "config Hi");
  folder.write("chat_template.jinja", "file {{ messages[0].content }}\n");
  CHECK(folder.render() == "file Hi");
}

TEST_CASE("chat format: of a list of templates the one named default is taken") {
  const Folder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  CHECK(folder.render() == "d");
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "tools", "template": "t"}]})");
  CHECK(folder.error().find("names the templates rag, tools, but none is 'default'") !=
        std::string::npos);
  folder.write("tokenizer_config.json", R"({"chat_template": 3})");
  CHECK(folder.error().find("tokenizer_config.json: key 'chat_template' is an integer") !=
        std::string::npos);
}

TEST_CASE("chat format: chat_template.json is read where the newer places hold none") {
  const Folder folder;
  folder.write("chat_template.json", R"({"chat_template": "old {{ messages[0].content }}"})");
  CHECK(folder.render() == "old Hi");
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  CHECK(folder.render() == "config");
  folder.write("tokenizer_config.json", "{}");
  folder.write("chat_template.json", R"({"chat_template": {"default": "d", "tool_use": "t"}})");
  CHECK(folder.render() == "d");
  folder.write("chat_template.json", R"({"chat_template": {"default": 1}})");
  CHECK(folder.error().find("chat_template.json: template 'default' is an integer") !=
        std::string::npos);
}

TEST_CASE("chat format: with tools the template named tool_use is taken") {
  const Folder folder;
  const auto with_tools = [&](const char* more) {
    const ChatFormat format = ChatFormat::from_folder(folder.path()).value();
    return format.render(Json::array(), false, parse_json(more));
  };
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ tools|length }}"}]})");
  CHECK(with_tools(R"({"tools": [{}]})") == "t1");
  CHECK(with_tools(R"({"tools": []})") == "t0");
  CHECK(with_tools(R"({"tools": null})") == "d");
  CHECK(with_tools("{}") == "d");
  folder.write("chat_template.jinja", "file");
  CHECK(with_tools(R"({"tools": [{}]})") == "file");
  fs::create_directories(folder.path() / "additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "more{{ tools|length }}");
  CHECK(with_tools(R"({"tools": [{}]})") == "more1");
  CHECK(with_tools("{}") == "file");
  // A template that is not used may hold what we do not know.
  folder.write("additional_chat_templates/tool_use.jinja", "{% block x %}{% endblock %}");
  CHECK(with_tools("{}") == "file");
  try {
    with_tools(R"({"tools": [{}]})");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.message().starts_with("template 'tool_use': chat template: line 1: "));
  }
}

TEST_CASE("chat format: special tokens are variables, as texts or objects, from both files") {
  const Folder folder;
  folder.write("chat_template.jinja",
               "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ image_token }}|{{ mask_token is "
               "defined }}");
  folder.write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null,
                   "image_token": "<img>", "add_bos_token": true, "added_tokens_decoder": {"0": {}}})");
  CHECK(folder.render() == "<s>|</s>||<img>|False");
  folder.write("special_tokens_map.json",
               R"({"bos_token": "<other>", "pad_token": {"content": "<pad>"}})");
  CHECK(folder.render() == "<s>|</s>|<pad>|<img>|False");
  // Without a list of added tokens transformers lets the legacy map win.
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": "</s>", "image_token": "<img>"})");
  CHECK(folder.render() == "<other>|</s>|<pad>|<img>|False");
}

TEST_CASE("chat format: tools and documents are none, further variables can be given") {
  const Folder folder;
  folder.write("chat_template.jinja",
               "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ "
               "date_string|d('no date') }}");
  CHECK(folder.render() == "TrueTrueTrueno date");
  const ChatFormat format = ChatFormat::from_folder(folder.path()).value();
  const Json more = parse_json(R"({"tools": [], "date_string": "1 May"})");
  CHECK(format.render(Json::array(), false, more) == "FalseTrueFalse1 May");
}

TEST_CASE("chat format: errors name the file, the line and the cause") {
  const Folder folder;
  folder.write("chat_template.jinja", "line one\n{% if %}");
  CHECK(folder.error() == (folder.path() / "chat_template.jinja").string() +
                              ": chat template: line 2: found '%}', expected an expression");
  folder.write("chat_template.jinja", "x");
  folder.write("tokenizer_config.json", "{\"bos_token\": ");
  CHECK(folder.error().find("tokenizer_config.json: not valid JSON") != std::string::npos);
  folder.write("tokenizer_config.json", "[]");
  CHECK(folder.error().find("tokenizer_config.json: found an array, expected an object") !=
        std::string::npos);
}

TEST_CASE("chat template: content in parts passes through as JSON") {
  const ChatTemplate chat(
      "{% for part in messages[0].content %}{{ part.type }}:{{ part|tojson }};{% endfor %}");
  const Json variables =
      parse_json(R"({"messages": [{"content": [{"type": "text", "n": [1, 2.5, null, true]}]}]})");
  CHECK(chat.render(variables) == R"(text:{"type": "text", "n": [1, 2.5, null, true]};)");
}

TEST_CASE("chat template: one template renders many times, each from the start") {
  const ChatTemplate chat(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ "
      "ns.n }}");
  CHECK(chat.render(parse_json(R"({"messages": [1, 2]})")) == "2");
  CHECK(chat.render(parse_json(R"({"messages": [1]})")) == "1");
  CHECK(chat.render(parse_json(R"({"messages": [1, 2]})")) == "2");
}

TEST_CASE("chat template: the clock given is the clock used") {
  std::tm time{};
  time.tm_year = 99;
  time.tm_mon = 11;
  time.tm_mday = 31;
  CHECK(ChatTemplate("{{ strftime_now('%d %b %Y') }}").render(Json::object(), [&] {
    return time;
  }) == "31 Dec 1999");
  CHECK(ChatTemplate("{{ strftime_now('%Y')|int > 2000 }}").render(Json::object()) == "True");
}

TEST_CASE("chat template: variables that cannot be Python's are refused") {
  const ChatTemplate chat("{{ x }}");
  const auto error_of = [&](const Json& variables) -> std::string {
    try {
      chat.render(variables);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  CHECK(error_of(Json::array()) == "chat template: the variables are an array, expected an object");
  CHECK(error_of(parse_json(R"({"x": 18446744073709551615})")) ==
        "chat template: integer 18446744073709551615 is past 64 signed bits");
  CHECK(error_of(Json{{"x", "\xff"}}) == "chat template: a variable holds text that is not UTF-8");
  Json deep = Json::array();
  for (int i = 0; i < 2000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  CHECK(error_of(Json{{"x", deep}}).find("nests deeper") != std::string::npos);
}
