#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace kvcal {

/// Rules of a regular expression, and limits of one match, because expressions are untrusted.
struct RegexOptions {
  bool is_anchored = false;    ///< matches only at the start of the search
  bool is_multiline = false;   ///< ^ and $ match at line feeds too
  bool is_jitted = false;      ///< compiled to machine code where supported
  bool trusts_text = false;    ///< texts are known to be valid UTF-8
  uint32_t max_nesting = 250;  ///< of parentheses
  uint32_t max_steps = 0, max_depth = 0, max_heap_kib = 0;  ///< of one match
  bool counts_work = false;  ///< find takes a RegexWork; costs as much again as matching

  bool operator==(const RegexOptions&) const = default;
};

/// Error for an invalid expression; the message is PCRE2's.
struct RegexSyntaxError : Error {
  RegexSyntaxError(size_t where, std::string message) : Error(std::move(message)), offset(where) {}
  size_t offset;  ///< in the expression
};

/// The work of matches, which is the same on every machine: parts of an expression that were tried,
/// and bytes that were passed.
struct RegexWork {
  uint64_t done = 0;
  uint64_t most = 0;  ///< a match that would go on behind it is an Error
};

/// A PCRE2 regular expression over UTF-8, with Unicode's character classes. Thread-safe.
class Pcre2Regex {
 public:
  /// Throws RegexSyntaxError.
  Pcre2Regex(std::string_view expression, const RegexOptions& options);

  /// Begin and end of the first match that begins in [from, last]. Throws Error with PCRE2's
  /// message, also where a limit is reached. work, of an expression that counts it, grows by that
  /// of this match, which an interrupt ends.
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from,
                                                size_t last = std::string_view::npos,
                                                RegexWork* work = nullptr) const;

 private:
  RegexOptions options_;
  std::unique_ptr<void, void (*)(void*)> code_;
};

}  // namespace kvcal
