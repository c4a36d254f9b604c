#include "recipe/target.h"

#include "core/error.h"
#include "recipe/recipe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace kvcal {
namespace {

constexpr std::string_view kRegexPrefix = "re:";
constexpr size_t kMaxPatternBytes = 4096;
constexpr uint32_t kMatchSteps = 1'000'000, kMatchDepth = 10'000, kMatchHeapKiB = 16 * 1024;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, Free>;

PCRE2_SPTR units_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

[[noreturn]] void fail_pattern(std::string_view pattern, size_t offset, std::string_view why) {
  fail("pattern 're:", pattern, "' is no regular expression at character ", offset + 1, ": ", why);
}

/// PCRE2 knows more than Python's `re`, and reads some of it differently: refused, so that a recipe
/// means the same to both. Source: Python 3.11, library reference, "re".
void check_python_syntax(std::string_view pattern) {
  constexpr std::string_view kEscapes = "AbBdDsSwWZafnrtvx", kAfterQuestion = ":=!<>P#(imsx-";
  const auto at = [&](size_t i) { return i < pattern.size() ? pattern[i] : '\0'; };
  bool is_in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (at(i) == '\\') {
      const char next = at(++i);
      if (std::isalpha(static_cast<unsigned char>(next)) &&
          kEscapes.find(next) == std::string_view::npos)
        fail_pattern(pattern, i - 1, std::string("Python's re knows no \\") + next);
      if (next == 'v' || (is_in_class && next == 'Z'))
        fail_pattern(pattern, i - 1, "ambiguous escape");
    } else if (is_in_class) {
      if (at(i) == '[' && (at(i + 1) == ':' || at(i + 1) == '.' || at(i + 1) == '='))
        fail_pattern(pattern, i, "Python's re knows no character class names");
      if (at(i) == ']') is_in_class = false;
    } else if (at(i) == '[') {
      is_in_class = true;
      if (at(i + 1) == '^') ++i;
      if (at(i + 1) == ']') ++i;  // the first ] is a member
    } else if (at(i) == '(' && at(i + 1) == '*') {
      fail_pattern(pattern, i, "Python's re knows no verbs (*...)");
    } else if (at(i) == '(' && at(i + 1) == '?') {
      const bool is_named = at(i + 2) == '<' && at(i + 3) != '=' && at(i + 3) != '!';
      const bool is_recursion = at(i + 2) == 'P' && at(i + 3) == '>';
      if (is_named || is_recursion || kAfterQuestion.find(at(i + 2)) == std::string_view::npos)
        fail_pattern(pattern, i, "Python's re knows no such group");
    } else if (at(i) == '{' && at(i + 1) == ',') {
      fail_pattern(pattern, i, "write {0,n} for {,n}");
    }
  }
}

Code compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    fail("a pattern of ", pattern.size(), " bytes, expected at most ", kMaxPatternBytes);
  check_python_syntax(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  Code code(pcre2_compile(units_of(pattern), pattern.size(), options, &error, &offset, nullptr));
  if (!code) fail_pattern(pattern, offset, message_of(error));
  return code;
}

/// compile(), once a pattern: a model may have ten thousands of modules to match.
const Code& compiled(std::string_view pattern) {
  constexpr size_t kMaxKept = 1000;
  thread_local std::map<std::string, Code, std::less<>> kept;
  if (const auto found = kept.find(pattern); found != kept.end()) return found->second;
  if (kept.size() >= kMaxKept) kept.clear();
  return kept.emplace(pattern, compile(pattern)).first->second;
}

bool matches_regex(std::string_view pattern, std::string_view name) {
  const Code& code = compiled(pattern);
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  if (!match || !context) fail("out of memory while matching '", pattern, "'");
  pcre2_set_match_limit(context.get(), kMatchSteps);
  pcre2_set_depth_limit(context.get(), kMatchDepth);
  pcre2_set_heap_limit(context.get(), kMatchHeapKiB);
  const int result =
      pcre2_match(code.get(), units_of(name), name.size(), 0, 0, match.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) fail("pattern 're:", pattern, "' on module '", name, "': ", message_of(result));
  return true;
}

}  // namespace

void check_target(std::string_view pattern) {
  if (pattern.empty())
    fail("found an empty string, expected a class name, a module name or 're:...'");
  if (!pattern.starts_with(kRegexPrefix)) return;
  if (pattern == kRegexPrefix)
    fail("found 're:' without a regular expression, which matches everything");
  compile(pattern.substr(kRegexPrefix.size()));
}

bool matches_target(std::string_view pattern, std::string_view name, std::string_view class_name) {
  if (pattern == class_name) return true;
  if (pattern.starts_with(kRegexPrefix))
    return matches_regex(pattern.substr(kRegexPrefix.size()), name);
  return pattern == name;
}

}  // namespace kvcal
