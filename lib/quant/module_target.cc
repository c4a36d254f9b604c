#include "quant/module_target.h"

#include <cctype>
#include <functional>
#include <map>
#include <string>

#include "core/interrupt.h"
#include "core/pcre2_regex.h"

namespace kvcal {
namespace {

constexpr std::string_view kRegexPrefix = "re:";
constexpr size_t kMaxPatternBytes = 4096;
constexpr RegexOptions kOptions{
    .is_anchored = true, .max_steps = 1'000'000, .max_depth = 10'000, .max_heap_kib = 16 * 1024};

[[noreturn]] void fail_pattern(std::string_view pattern, size_t offset, std::string_view why) {
  fail("pattern 're:", pattern, "' is no regular expression at character ", offset + 1, ": ", why);
}

/// Refuses syntax that PCRE2 knows and Python's `re` does not, or reads differently, so that a
/// recipe means the same in both. Source: Python 3.11, library reference, "re".
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

Pcre2Regex compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    fail("a pattern of ", pattern.size(), " bytes, expected at most ", kMaxPatternBytes);
  check_python_syntax(pattern);
  try {
    return {pattern, kOptions};
  } catch (const RegexSyntaxError& error) {
    fail_pattern(pattern, error.offset, error.message());
  }
}

/// compile(), once for each pattern: a model may have ten thousands of modules to match.
const Pcre2Regex& compiled(std::string_view pattern) {
  constexpr size_t kMaxKept = 1000;
  thread_local std::map<std::string, Pcre2Regex, std::less<>> kept;
  if (const auto found = kept.find(pattern); found != kept.end()) return found->second;
  throw_if_interrupted();  // with more patterns than are kept, each module compiles all of them
  if (kept.size() >= kMaxKept) kept.clear();
  return kept.emplace(pattern, compile(pattern)).first->second;
}

bool matches_regex(std::string_view pattern, std::string_view name) {
  const Pcre2Regex& regex = compiled(pattern);
  try {
    return regex.find(name, 0).has_value();
  } catch (Error& error) {
    error.add_context("pattern 're:" + std::string(pattern) + "' on module '" + std::string(name) +
                      "'");
    throw;
  }
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
  if (!class_name.empty() && pattern == class_name) return true;
  if (pattern.starts_with(kRegexPrefix))
    return matches_regex(pattern.substr(kRegexPrefix.size()), name);
  return pattern == name;
}

}  // namespace kvcal
