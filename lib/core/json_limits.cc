#include "core/json_limits.h"

#include "core/error.h"
#include "core/file.h"

namespace kvcal {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

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
