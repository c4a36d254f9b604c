#include "tokenizers/pattern.h"

#include <chrono>
#include <string>

#include "core/error.h"
#include "core/pcre2_regex.h"
#include "core/utf8.h"

namespace kvcal::tokenizers {
namespace {

/// Expressions come from strangers. One attempt at one position may take kMatchLimit steps, kStride
/// positions are tried between two looks at the clock, and one text may take kTimeLimit.
constexpr uint32_t kMatchLimit = 5'000'000;
constexpr RegexOptions kOptions{.is_multiline = true,
                                .is_jitted = true,
                                .trusts_text = true,
                                .max_nesting = 100,
                                .max_steps = kMatchLimit,
                                .max_depth = kMatchLimit,
                                .max_heap_kib = 256 * 1024};
constexpr size_t kStride = 512;
constexpr std::chrono::seconds kTimeLimit{20};
constexpr size_t kLongestExpression = 64 * 1024;

std::string shown(std::string_view expression) {
  return std::string(expression.substr(0, 120)) + (expression.size() > 120 ? "..." : "");
}

Pcre2Regex compile(std::string_view expression) {
  if (expression.size() > kLongestExpression)
    fail("regular expression of ", expression.size(), " bytes is longer than the limit of ",
         kLongestExpression);
  const std::string translated = in_context("regular expression '" + shown(expression) + "'",
                                            [&] { return pcre2_from_oniguruma(expression); });
  return in_context("invalid regular expression '" + shown(expression) + "'",
                    [&] { return Pcre2Regex(translated, kOptions); });
}

/// Looks at the clock once in kCalls calls, for one call costs as much as a short match.
class Stopwatch {
 public:
  bool expired() {
    if (++calls_ % kCalls != 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (calls_ == kCalls) start_ = now;
    return now - start_ > kTimeLimit;
  }

 private:
  static constexpr uint64_t kCalls = 64;
  uint64_t calls_ = 0;
  std::chrono::steady_clock::time_point start_;
};

class Regex : public Pattern {
 public:
  explicit Regex(std::string_view expression)
      : expression_(expression), regex_(compile(expression)) {}

  void for_each(std::string_view text, Visitor<Span> visit) const override {
    Stopwatch stopwatch;
    size_t at = 0, previous_end = 0;
    bool has_previous = false;
    Span match;
    while (at <= text.size() && find(text, at, stopwatch, match)) {
      if (match.begin == match.end && has_previous && previous_end == match.end) {
        at = match.end + 1;
        while (at < text.size() && utf8::is_tail(text[at])) ++at;
        continue;
      }
      at = previous_end = match.end;
      has_previous = true;
      visit(match);
    }
  }

 private:
  bool find(std::string_view text, size_t from, Stopwatch& stopwatch, Span& match) const {
    for (size_t at = from;; at = next_start(text, at + kStride)) {
      if (stopwatch.expired())
        fail("regular expression '", shown(expression_), "' takes more than ", kTimeLimit.count(),
             " s on a text of ", text.size(), " bytes");
      try {
        if (const auto found = regex_.find(text, at, next_start(text, at + kStride) - 1)) {
          match = {found->first, found->second};
          return true;
        }
      } catch (Error& error) {
        error.add_context("regular expression '" + shown(expression_) + "' at byte " +
                          std::to_string(at) + " of a text of " + std::to_string(text.size()));
        throw;
      }
      if (at + kStride > text.size()) return false;
    }
  }

  /// at, moved on to the start of a code point; may lie behind the text.
  static size_t next_start(std::string_view text, size_t at) {
    while (at < text.size() && utf8::is_tail(text[at])) ++at;
    return at;
  }

  std::string expression_;
  Pcre2Regex regex_;
};

class Literal : public Pattern {
 public:
  explicit Literal(std::string_view text) : text_(text) {}
  void for_each(std::string_view text, Visitor<Span> visit) const override {
    for (size_t at = 0; (at = text.find(text_, at)) != std::string_view::npos; at += text_.size())
      visit({at, at + text_.size()});
  }

 private:
  std::string text_;
};

}  // namespace

std::unique_ptr<Pattern> make_pcre2_regex(std::string_view expression) {
  return std::make_unique<Regex>(expression);
}

std::unique_ptr<Pattern> make_regex(std::string_view expression) {
  if (auto scanner = make_scanner(expression)) return scanner;
  return make_pcre2_regex(expression);
}

std::unique_ptr<Pattern> make_literal(std::string_view text) {
  if (text.empty()) return make_pcre2_regex("");
  return std::make_unique<Literal>(text);
}

void Splitter::flush() {
  if (has_pending_) out_(pending_);
  has_pending_ = false;
}

void Splitter::add(Span part, bool is_match) {
  bool joins = false;  // the part belongs to the pending one
  switch (behaviour_) {
    case Behaviour::kRemoved:
      if (!is_match) out_(part);
      return;
    case Behaviour::kIsolated:
      out_(part);
      return;
    case Behaviour::kContiguous:
      joins = is_match == previous_;
      break;
    case Behaviour::kMergedWithPrevious:
      joins = is_match && !previous_;
      break;
    case Behaviour::kMergedWithNext:
      joins = !is_match && previous_;
      break;
  }
  previous_ = is_match;
  if (joins && has_pending_) {
    pending_.end = part.end;
    return;
  }
  flush();
  pending_ = part;
  has_pending_ = true;
}

void Splitter::finish() {
  flush();
}

void split_at(std::string_view text, const Pattern& pattern, bool invert, Behaviour behaviour,
              Visitor<Span> out) {
  Splitter splitter(behaviour, out);
  size_t at = 0;
  pattern.for_each(text, [&](Span match) {
    if (match.begin > at) splitter.add({at, match.begin}, invert);
    splitter.add(match, !invert);
    at = match.end;
  });
  if (at < text.size()) splitter.add({at, text.size()}, invert);
  splitter.finish();
}

}  // namespace kvcal::tokenizers
