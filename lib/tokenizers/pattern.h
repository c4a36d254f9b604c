#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace kvcal::tokenizers {

/// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0, end = 0;
};

/// A callable that is borrowed for the length of a call; costs one indirect call and no allocation.
template <class Argument>
class Visitor {
 public:
  template <class Callable>
  Visitor(const Callable& callable)  // NOLINT: meant to convert
      : callable_(&callable),
        call_([](const void* c, Argument a) { (*static_cast<const Callable*>(c))(a); }) {}
  void operator()(Argument argument) const { call_(callable_, argument); }

 private:
  const void* callable_;
  void (*call_)(const void*, Argument);
};

/// Something that is looked for in valid UTF-8 text. Thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Visits the matches from left to right; they do not overlap, and an empty one never stands
  /// right behind another. Throws Error when the pattern needs too many steps on this text.
  virtual void for_each(std::string_view text, Visitor<Span> visit) const = 0;
};

/// A regular expression in the dialect of Oniguruma, as tokenizer.json has them. Throws Error that
/// shows the expression and what is wrong with it.
std::unique_ptr<Pattern> make_regex(std::string_view expression);
/// Like make_regex, but always through PCRE2, never through a hand-written scanner: for tests.
std::unique_ptr<Pattern> make_pcre2_regex(std::string_view expression);
/// The text itself.
std::unique_ptr<Pattern> make_literal(std::string_view text);
/// The hand-written scanner for a well-known split expression, or nullptr.
std::unique_ptr<Pattern> make_scanner(std::string_view expression);

/// Rewrites an expression from Oniguruma's dialect (Ruby syntax) to PCRE2's (with UTF, UCP and
/// MULTILINE). Throws Error for what has no equal there.
std::string pcre2_from_oniguruma(std::string_view expression);

/// How a split treats its matches. Source: `tokenizers` SplitDelimiterBehavior.
enum class Behaviour { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Splits text at pattern; invert swaps the roles of the matches and of what is between them.
void split_at(std::string_view text, const Pattern& pattern, bool invert, Behaviour behaviour,
              Visitor<Span> out);

}  // namespace kvcal::tokenizers
