#include "core/json.h"

#include <string>

#include "support/catch.h"

using namespace kvcal;

namespace {

std::string sizes_message(std::string_view text, size_t max_values, size_t max_token_bytes) {
  try {
    check_json_sizes(text, max_values, max_token_bytes);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("json limits: values are counted before any is built") {
  const auto counts_up_to = [](std::string_view text, size_t count) {
    INFO(text);
    CHECK(sizes_message(text, count, 100) == "");
    CHECK(sizes_message(text, count - 1, 100) ==
          "JSON holds more than " + std::to_string(count - 1) + " values");
  };
  counts_up_to("[1,2,3,4]", 5);
  counts_up_to("[[],[],{}]", 4);
  counts_up_to(R"({"a":[1,2],"b":{}})", 5);
  counts_up_to("[[[[1]]]]", 5);
  counts_up_to(R"(["],[","\",\"","\\"])", 4);
  counts_up_to(" [ 1 , [ ] , 2 ] ", 4);
}

TEST_CASE("json limits: a long token is told with its place") {
  const std::string wanted = "JSON has a string, number or white space of more than 8 bytes";
  CHECK(sizes_message(R"(["123456"])", 100, 8) == "");
  CHECK(sizes_message(R"(["1234567"])", 100, 8) == wanted + ", at byte 1");
  CHECK(sizes_message(R"({"12345678":1})", 100, 8) == wanted + ", at byte 1");
  CHECK(sizes_message("[1,123456789]", 100, 8) == wanted + ", at byte 3");
  CHECK(sizes_message("[1,         2]", 100, 8) == wanted + ", at byte 3");
  CHECK(sizes_message("[\"12345678", 100, 8) == wanted + ", at byte 1");
  CHECK(sizes_message("[1,2,3,4,5,6,7]", 100, 8) == "");
}

TEST_CASE("json limits: files of a model") {
  CHECK(parse_model_json(R"({"a": [1, 2]})") == parse_json(R"({"a": [1, 2]})"));
  const std::string long_text = '"' + std::string(kMaxTokenBytes, 'a') + '"';
  CHECK_THROWS_AS(parse_model_json(long_text, kTokenizerLimits), Error);
  CHECK(parse_json(long_text).get<std::string>().size() == kMaxTokenBytes);
  CHECK_THROWS_AS(parse_model_json("[" + std::string(1'000'000, '0') + "]"), Error);
}
