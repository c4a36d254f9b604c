#include "core/json.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;

namespace {

std::string parse_message(std::string_view text, const JsonLimits& limits = {}) {
  return message_of([&] { parse_json(text, limits); });
}

}  // namespace

TEST_CASE("json: objects keep the order of the text") {
  const Json value = parse_json(R"({"z": 1, "a": [true, null, -2, 0.5, "x"], "m": {"b": {}}})");
  CHECK(dump_json(value, -1) == R"({"z":1,"a":[true,null,-2,0.5,"x"],"m":{"b":{}}})"
                                "\n");
  CHECK(dump_json(sorted_keys(parse_json(R"({"b":[{"z":1,"y":2}],"a":{"d":1,"c":2}})")), -1) ==
        R"({"a":{"c":2,"d":1},"b":[{"y":2,"z":1}]})"
        "\n");
  CHECK(dump_json(parse_json(R"({"a":[1]})")) == "{\n  \"a\": [\n    1\n  ]\n}\n");
}

TEST_CASE("json: text that is no JSON is refused with line and column") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "line 1, column 1"},
      {"{", "line 1, column 2"},
      {"{\"a\": 1,}", "line 1, column 9"},
      {"[1,\n 2,\n ,3]", "line 3, column 2"},
      {"[1] 2", "line 1, column 5"},
      {"{'a': 1}", "line 1, column 2"},
      {"[01]", "line 1, column 3"},
      {"[NaN]", "line 1, column 2"},
      {"[1, /* */ 2]", "line 1, column 5"},
      {"\"\xff\"", "line 1, column 2"},
      {"\"\xc0\x80\"", "line 1, column 2"},
      {"\"a\nb\"", "line 1, column 3"},
      {"\"\\ud800\"", "line 1, column 8"},
      {"tru", "line 1, column 4"},
  };
  for (const auto& [text, place] : cases) {
    INFO(text);
    CHECK(contains(parse_message(text), "not valid JSON at " + place + ":"));
  }
  CHECK(parse_message(std::string_view("{}\0{", 4)) ==
        "not valid JSON at line 1, column 3: a NUL byte");
  CHECK(parse_message("[1e999]") ==
        "not valid JSON at line 1, column 6: number overflow parsing '1e999'");
}

TEST_CASE("json: a key that appears twice in one object is refused, in two objects it is not") {
  CHECK(parse_message(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})") == "no error");
  CHECK(parse_message(R"({"a": 1, "b": 2, "a": 3})") == "key 'a' appears twice in one object");
  CHECK(parse_message(R"({"x": [{"a": 1, "\u0061": 2}]})") ==
        "key 'a' appears twice in one object");
}

TEST_CASE("json: depth, length and number of values are bounded") {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(parse_message(nested(128)) == "no error");
  CHECK(parse_message(nested(129)) == "JSON nests deeper than 128 levels");
  CHECK(parse_message(std::string(1'000'000, '[')) == "JSON nests deeper than 128 levels");
  CHECK(parse_message(nested(3), {.max_depth = 2}) == "JSON nests deeper than 2 levels");
  CHECK(parse_message("[1, 2]", {.max_bytes = 5}) ==
        "JSON of 6 bytes is longer than the limit of 5");
  CHECK(parse_message("[1, 2]", {.max_values = 3}) == "no error");
  CHECK(parse_message("[1, 2, 3]", {.max_values = 3}) == "JSON holds more than 3 values");
}

TEST_CASE("json: fields have the type that is asked for") {
  const Json object = parse_json(
      R"({"i": 7, "n": -7, "f": 2.5, "w": 2.0, "s": "x", "b": true, "z": null, "u": 18446744073709551615,
          "l": "0123456789012345678901234567890123456789012345678901234567890123456789"})");
  CHECK(optional_int(object, "i") == 7);
  CHECK(optional_int(object, "n") == -7);
  CHECK(optional_number(object, "f") == 2.5);
  CHECK(optional_number(object, "i") == 7.0);
  CHECK(optional_bool(object, "b") == true);
  CHECK(optional_string(object, "s") == "x");
  CHECK(required_int(object, "i") == 7);
  CHECK(required_number(object, "f") == 2.5);
  CHECK(required_string(object, "s") == "x");
  for (const char* absent : {"z", "none"}) {
    CHECK(!find_field(object, absent));
    CHECK(!optional_int(object, absent));
    CHECK(!optional_number(object, absent));
    CHECK(!optional_bool(object, absent));
    CHECK(!optional_string(object, absent));
  }
  CHECK(message_of([&] { required_int(object, "z"); }) ==
        "key 'z' is missing, expected an integer");
  CHECK(message_of([&] { required_number(object, "none"); }) ==
        "key 'none' is missing, expected a number");
  CHECK(message_of([&] { required_string(object, "none"); }) ==
        "key 'none' is missing, expected a string");
  CHECK(message_of([&] { optional_int(object, "w"); }) ==
        "key 'w' is a number with a fraction (2.0), expected an integer");
  CHECK(message_of([&] { optional_int(object, "u"); }) ==
        "key 'u' is an integer (18446744073709551615), expected an integer below 2^63");
  CHECK(message_of([&] { optional_number(object, "s"); }) ==
        "key 's' is a string (\"x\"), expected a number");
  CHECK(message_of([&] { optional_bool(object, "i"); }) ==
        "key 'i' is an integer (7), expected true or false");
  CHECK(message_of([&] { optional_string(object, "b"); }) ==
        "key 'b' is a boolean (true), expected a string");
  CHECK(message_of([&] { optional_int(object, "l"); }) ==
        "key 'l' is a string (\"01234567890123456789012345678901234567890123456789012345..."
        "), expected an integer");
  CHECK(message_of([&] { find_field(parse_json("[]"), "k"); }) ==
        "expected an object with key 'k', found an array");
}

TEST_CASE("json: floats and integers come back as they were") {
  for (const double value : {1e-5, 0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 1e22}) {
    const Json back = parse_json(dump_json(Json(value), -1));
    CHECK(back.get<double>() == value);
  }
  CHECK(parse_json("9223372036854775807").get<int64_t>() == INT64_MAX);
  CHECK(parse_json("-9223372036854775808").get<int64_t>() == INT64_MIN);
  CHECK(parse_json("18446744073709551615").get<uint64_t>() == UINT64_MAX);
}

TEST_CASE("json: Python's constants are numbers where asked for, and strings stay strings") {
  const std::string text =
      R"({"a": [0.0, Infinity, -Infinity, NaN], "b": "Infinity \" NaN", "NaN": "-Infinity"})";
  CHECK_THROWS_AS(parse_json(text), Error);
  const Json value = parse_json(text, {.has_python_constants = true});
  CHECK(value.at("a").at(1).get<double>() == std::numeric_limits<double>::infinity());
  CHECK(value.at("a").at(2).get<double>() == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(value.at("a").at(3).get<double>()));
  CHECK(value.at("b") == "Infinity \" NaN");
  CHECK(value.at("NaN") == "-Infinity");
  // As json.dumps(value, indent=2) of Python 3.11.
  CHECK(dump_as_python(value) ==
        "{\n  \"a\": [\n    0.0,\n    Infinity,\n    -Infinity,\n    NaN\n  ],\n"
        "  \"b\": \"Infinity \\\" NaN\",\n  \"NaN\": \"-Infinity\"\n}");
}

TEST_CASE("json: fields of values of any kind, lists that must be there, a value or null") {
  const Json object = parse_json(R"({"list": [1], "z": null, "n": 1})");
  CHECK(member(object, "n"));
  CHECK(!member(object, "z"));
  CHECK(!member(object["list"], "n"));
  CHECK(required_list(object, "list").size() == 1);
  for (const char* key : {"z", "n", "none"})
    CHECK(message_of([&] { required_list(object, key, "a list of cells"); }) ==
          "key '" + std::string(key) + "' is missing, expected a list of cells");
  CHECK(or_null(std::optional<int64_t>(3)) == Json(3));
  CHECK(or_null(std::optional<int64_t>()).is_null());
}

TEST_CASE("json: a byte order mark is refused, as Python's json refuses it") {
  CHECK(message_of([] { parse_model_json("\xef\xbb\xbf{}"); }) ==
        "not valid JSON at line 1, column 1: a byte order mark; save the file as UTF-8 without it");
}

TEST_CASE("json: keys of an object of any size are sorted") {
  Json object = Json::object();
  auto& parts = object.get_ref<Json::object_t&>();
  for (int i = 0; i < 200'000; ++i) parts.Container::emplace_back(std::to_string(1'000'000 - i), i);
  const Json sorted = sorted_keys(object);
  REQUIRE(sorted.size() == 200'000);
  CHECK(sorted.front() == 0);
  CHECK(sorted.back() == 1);
}
