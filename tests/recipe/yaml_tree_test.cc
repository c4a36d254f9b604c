#include "recipe/yaml.h"

#include <string>

#include "support/catch.h"

using namespace kvcal;

namespace {

std::string message_of(const std::string& text, const YamlLimits& limits = {}) {
  try {
    parse_yaml(text, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("yaml tree: kinds, texts and places") {
  const YamlNode root = parse_yaml("a: 1\nb:\n  - 'x'\n  - ~\nc: {d: \"e\\u00e9\"}\nf:\n");
  REQUIRE(root.kind == YamlNode::Kind::kMap);
  REQUIRE(root.entries.size() == 4);
  CHECK(root.find("a")->text == "1");
  CHECK_FALSE(root.find("a")->is_quoted);
  CHECK(place_of(*root.find("a")) == "line 1, column 4: ");
  const YamlNode& list = *root.find("b");
  REQUIRE(list.kind == YamlNode::Kind::kList);
  CHECK(list.items.at(0).text == "x");
  CHECK(list.items.at(0).is_quoted);
  CHECK(list.items.at(1).kind == YamlNode::Kind::kNull);
  CHECK(root.find("c")->find("d")->text == "e\u00e9");
  CHECK(root.find("f")->kind == YamlNode::Kind::kNull);
  CHECK(place_of(*root.find("f")) == "line 6, column 1: ");
  CHECK(root.find("g") == nullptr);
}

TEST_CASE("yaml tree: a byte order mark and a document start are no content") {
  CHECK(parse_yaml("\xef\xbb\xbf"
                   "a: b\n")
            .find("a") != nullptr);
  CHECK(parse_yaml("---\na: b\n...\n").find("a") != nullptr);
  CHECK(parse_yaml("%YAML 1.2\n---\na: b\n").find("a") != nullptr);
  CHECK(parse_yaml("").kind == YamlNode::Kind::kNull);
}

TEST_CASE("yaml tree: limits hold") {
  CHECK(message_of("[1, 2, 3]", {.max_nodes = 3}) ==
        "line 1, column 8: more than 3 values in one recipe");
  CHECK(message_of("[[[1]]]", {.max_depth = 2}) == "line 1, column 3: nested deeper than 2 levels");
  CHECK(message_of("[[1]]", {.max_depth = 2}) == "");
  CHECK(message_of("abcd", {.max_bytes = 3}) == "found 4 bytes, expected a recipe of at most 3");
}

// Nesting, long tokens and repetition as hostile files have them: all of about a megabyte.
TEST_CASE("yaml tree: hostile files end in an error") {
  const int many = 1'000'000;
  for (const std::string& text :
       {repeated("[", many), repeated("{", many), repeated("- ", many / 2),
        repeated("? ", many / 2), repeated("{a: ", many / 4), repeated("[{a: [", many / 6),
        repeated("\"", many - 1), "? " + std::string(many, 'a') + "\n: b",
        repeated("!a ", many / 3), repeated("&a ", many / 3), repeated("*a ", many / 3),
        "[" + repeated("a,", many / 2) + "]", repeated("%TAG ! a\n", many / 9),
        repeated("a:\n ", many / 4), repeated("---\n", many / 4), "\"" + repeated("\\x", many / 2),
        repeated("'", many + 1)}) {
    INFO(text.substr(0, 20));
    CHECK_THROWS_AS(parse_yaml(text), Error);
  }
  // Long but harmless.
  CHECK(parse_yaml("a: |" + repeated("\n ", many / 2) + "b").find("a") != nullptr);
}
