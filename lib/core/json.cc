#include "core/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/json_append.h"
#include "core/process.h"
#include "core/safe_points.h"

namespace kvcal {
namespace {

/// "line 3, column 7" of a byte offset.
std::string place_of(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(offset - line_start + 1);
}

/// Strings that represent constants unknown to JSON, with the same length, so that offsets stay
/// correct. DEL keeps them apart from normal strings.
struct PythonConstant {
  std::string_view word, stand_in;
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<PythonConstant, 3> kPythonConstants{{
    {"-Infinity", "\x7f-Infin", -kInfinity},
    {"Infinity", "\x7fInfin", kInfinity},
    {"NaN", "\x7f", std::numeric_limits<double>::quiet_NaN()},
}};

/// text with the constants outside of strings replaced by strings.
std::string with_stand_ins(std::string_view text) {
  std::string result(text);
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') ++at;
    if (in_string) continue;
    for (const PythonConstant& constant : kPythonConstants) {
      if (text.compare(at, constant.word.size(), constant.word) != 0) continue;
      result.replace(at, constant.word.size(), '"' + std::string(constant.stand_in) + '"');
      at += constant.word.size() - 1;
      break;
    }
  }
  return result;
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Builds the value as nlohmann's own handler does, and refuses excess depth and repeated keys.
class BoundedBuilder : public nlohmann::json_sax<Json> {
 public:
  BoundedBuilder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& literal) override {
    if (!std::isfinite(value)) fail("number ", literal, " is out of range");
    return add(value);
  }
  bool string(string_t& value) override {
    if (limits_.has_python_constants)
      for (const PythonConstant& constant : kPythonConstants)
        if (value == constant.stand_in) return add(constant.value);
    return add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    points_.pass();
    if (!keys_.back().insert(name).second) fail("key '", name, "' appears twice in one object");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …": the
    // message replaces the position by our own.
    std::string what = error.what();
    if (const size_t at = what.find("syntax error"); at != std::string::npos) {
      what = what.substr(at);
    } else if (const size_t end = what.find("] "); end != std::string::npos) {
      what = what.substr(end + 2);
    }
    fail("not valid JSON at ", place_of(text_, position == 0 ? 0 : position - 1), ": ", what);
  }

 private:
  template <class Value>
  bool add(Value&& value) {
    place(Json(std::forward<Value>(value)));
    return true;
  }
  Json* place(Json value) {
    points_.pass();
    if (++num_values_ > limits_.max_values)
      fail("JSON holds more than ", limits_.max_values, " values");
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& top = *stack_.back();
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    return &append_field(top, std::move(key_), std::move(value));
  }
  bool open(Json value) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth)
      fail("JSON nests deeper than ", limits_.max_depth, " levels");
    stack_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  JsonLimits limits_;
  Json root_;
  size_t num_values_ = 0;
  SafePoints points_;
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  throw_if_out_of_memory();  // a safe point: the destructor of Json allocates, and must not throw
  if (text.size() > limits.max_bytes)
    fail("JSON of ", text.size(), " bytes is longer than the limit of ", limits.max_bytes);
  // The parser stops at a NUL and would ignore the rest.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail("not valid JSON at ", place_of(text, nul), ": a NUL byte");
  text = without_trailing_space(text);
  check_json_sizes(text, limits.max_values, limits.max_bytes);
  BoundedBuilder builder(text, limits);
  if (limits.has_python_constants) {
    const std::string readable = with_stand_ins(text);
    Json::sax_parse(readable.begin(), readable.end(), &builder);
  } else {
    Json::sax_parse(text.begin(), text.end(), &builder);
  }
  return builder.take();
}

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "an integer";
  }
}

void fail_missing(std::string_view key, std::string_view wanted) {
  fail("key '", key, "' is missing, expected ", wanted);
}

void fail_kind(std::string_view key, std::string_view wanted, const Json& found) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  fail("key '", key, "' is ", kind_of(found), " (", text, "), expected ", wanted);
}

const Json* find_field(const Json& object, std::string_view key) {
  if (!object.is_object()) fail("expected an object with key '", key, "', found ", kind_of(object));
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> optional_int(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) return std::nullopt;
  if (field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX})
    fail_kind(key, "an integer below 2^63", *field);
  if (field->is_number_integer()) return field->get<int64_t>();
  fail_kind(key, "an integer", *field);
}

std::optional<double> optional_number(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) return std::nullopt;
  if (!field->is_number()) fail_kind(key, "a number", *field);
  return field->get<double>();
}

std::optional<bool> optional_bool(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) return std::nullopt;
  if (!field->is_boolean()) fail_kind(key, "true or false", *field);
  return field->get<bool>();
}

std::optional<std::string> optional_string(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) return std::nullopt;
  if (!field->is_string()) fail_kind(key, "a string", *field);
  return field->get<std::string>();
}

int64_t required_int(const Json& object, std::string_view key) {
  const auto value = optional_int(object, key);
  if (!value) fail_missing(key, "an integer");
  return *value;
}

double required_number(const Json& object, std::string_view key) {
  const auto value = optional_number(object, key);
  if (!value) fail_missing(key, "a number");
  return *value;
}

std::string required_string(const Json& object, std::string_view key) {
  auto value = optional_string(object, key);
  if (!value) fail_missing(key, "a string");
  return *std::move(value);
}

const Json& required_list(const Json& object, std::string_view key, std::string_view wanted) {
  const Json* field = find_field(object, key);
  if (!field || !field->is_array()) fail_missing(key, wanted);
  return *field;
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

Json without_constants(const Json& value) {
  if (value.is_number_float())
    for (const PythonConstant& constant : kPythonConstants) {
      const auto number = value.get<double>();
      if (number == constant.value || (std::isnan(number) && std::isnan(constant.value)))
        return constant.stand_in;
    }
  if (!value.is_structured()) return value;
  Json result = value;
  for (Json& part : result) part = without_constants(part);
  return result;
}

}  // namespace

std::string dump_as_python(const Json& value) {
  std::string text = without_constants(value).dump(2, ' ', true, Json::error_handler_t::replace);
  for (const PythonConstant& constant : kPythonConstants) {
    const std::string stand_in = "\"\\u007f" + std::string(constant.stand_in.substr(1)) + '"';
    for (size_t at = text.find(stand_in); at != std::string::npos; at = text.find(stand_in, at))
      text.replace(at, stand_in.size(), constant.word);
  }
  return text;
}

Json sorted_keys(const Json& value) {
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& item : value) result.push_back(sorted_keys(item));
    return result;
  }
  if (!value.is_object()) return value;
  std::vector<std::pair<std::string_view, const Json*>> parts;
  for (const auto& [name, part] : value.get_ref<const Json::object_t&>())
    parts.emplace_back(name, &part);
  std::ranges::sort(parts, {}, &std::pair<std::string_view, const Json*>::first);
  Json result = Json::object();
  for (const auto& [name, part] : parts)
    append_field(result, std::string(name), sorted_keys(*part));
  return result;
}

namespace {

/// Offset of the quote that ends the string that begins at begin, or of the text's last byte.
size_t end_of_string(std::string_view text, size_t begin) {
  size_t at = text.find_first_of("\"\\", begin + 1);
  while (at != std::string_view::npos && text[at] != '"')
    at = text.find_first_of("\"\\", at + 2);  // behind what the backslash escapes
  return at == std::string_view::npos ? text.size() - 1 : at;
}

}  // namespace

void check_json_sizes(std::string_view text, size_t max_values, size_t max_token_bytes) {
  if (text.size() <= max_token_bytes && text.size() / 2 < max_values) return;
  constexpr std::string_view kEndsToken = "[]{},:\"";
  size_t num_values = 1, token_begin = 0;
  bool is_first = false;  // nothing of the array or object has been seen
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_space(c) && at + 1 < text.size()) continue;
    if (is_first && c != ']' && c != '}') ++num_values;
    if (c == ',') ++num_values;
    if (num_values > max_values) fail("JSON holds more than ", max_values, " values");
    is_first = c == '[' || c == '{';
    if (c == '"') at = end_of_string(text.substr(0, at + max_token_bytes + 1), at);
    if (at - token_begin >= max_token_bytes)
      fail("JSON has a string, number or white space of more than ", max_token_bytes,
           " bytes, at byte ", token_begin);
    if (kEndsToken.find(c) != std::string_view::npos) token_begin = at + 1;
  }
}

Json parse_model_json(std::string_view text, const JsonLimits& limits) {
  // Python's json, by which transformers and the engines read it, refuses one.
  if (text.starts_with("\xef\xbb\xbf"))
    fail(
        "not valid JSON at line 1, column 1: a byte order mark; save the file as UTF-8 without it");
  if (text.size() <= limits.max_bytes) check_json_sizes(text, limits.max_values, kMaxTokenBytes);
  return parse_json(text, limits);
}

Json read_json_object(const std::filesystem::path& path, const JsonLimits& limits) {
  const std::string text = read_text(path, limits.max_bytes);
  return in_context(path.string(), [&] {
    Json value = parse_model_json(text, limits);
    if (!value.is_object()) fail("is ", kind_of(value), ", expected an object");
    return value;
  });
}

Json read_model_config(const std::filesystem::path& path) {
  JsonLimits limits = kSmallFileLimits;
  limits.has_python_constants = true;
  return read_json_object(path, limits);
}

}  // namespace kvcal
