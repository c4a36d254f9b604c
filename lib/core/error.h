#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/text.h"

namespace kvcal {

/// An error that a user can cause: bad input or environment. The message says what was found and
/// what was expected; each caller prepends its context with add_context, the outermost first.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const noexcept { return message_; }
  void add_context(std::string_view where) { message_ = shown_text(where) + ": " + message_; }

 private:
  std::string message_;
};

/// An Error of the system, such as of a disk, that says nothing about the content of a file. A
/// missing file is a plain Error. Code that reports faults of an input passes it on.
class SystemError : public Error {
 public:
  using Error::Error;
};

/// Thrown at the next safe point after the user asked to stop (see core/interrupt.h).
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

/// A part of a message that has several lines of its own.
struct Lines {
  std::string text;
};

namespace internal {

/// Literals and numbers are ours; any other text may be a stranger's, and ends no line.
template <class Part>
void put_part(std::ostream& text, const Part& part) {
  if constexpr (std::is_same_v<Part, Lines>)
    text << part.text;
  else if constexpr (std::is_same_v<Part, char>)
    text << shown_text({&part, 1});
  else if constexpr (!std::is_array_v<Part> && std::is_convertible_v<const Part&, std::string_view>)
    text << shown_text(part);
  else
    text << part;
}

}  // namespace internal

/// Throws Error with the concatenated parts.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (internal::put_part(text, parts), ...);
  throw Error(text.str());
}

/// Runs body; prepends where to an Error that leaves it: "where: message".
template <class Body>
decltype(auto) in_context(std::string_view where, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

namespace internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

/// Checks for our own mistakes, not the user's: always on.
#define KVCAL_CHECK(condition)                                                         \
  do {                                                                                 \
    if (!(condition)) ::kvcal::internal::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace kvcal
