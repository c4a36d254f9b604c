#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>
#include <string>

#include "core/error.h"
#include "core/utf8.h"
#include "tokenizers/pattern.h"

namespace kvcal::tokenizers {
namespace {

/// Expressions come from strangers. One attempt at one position may take kMatchLimit steps, kStride
/// positions are tried between two looks at the clock, and one text may take kTimeLimit.
constexpr uint32_t kMatchLimit = 5'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kStride = 512;
constexpr std::chrono::seconds kTimeLimit{20};
constexpr size_t kLongestExpression = 64 * 1024;

/// What a match needs, once a thread: it holds no state between matches.
struct MatchScratch {
  MatchScratch()
      : match_data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr)) {
    if (!match_data || !context || !stack) fail("PCRE2: out of memory");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match_data);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

  pcre2_match_data* match_data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchScratch& match_scratch() {
  thread_local MatchScratch scratch;
  return scratch;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

std::string message_of(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

std::string shown(std::string_view expression) {
  return std::string(expression.substr(0, 120)) + (expression.size() > 120 ? "..." : "");
}

Code compile(std::string_view expression) {
  if (expression.size() > kLongestExpression)
    fail("regular expression of ", expression.size(), " bytes is longer than the limit of ",
         kLongestExpression);
  const std::string translated = in_context("regular expression '" + shown(expression) + "'",
                                            [&] { return pcre2_from_oniguruma(expression); });
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C,
      &error, &at, context.get()));
  if (!code) fail("invalid regular expression '", shown(expression), "': ", message_of(error));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without JIT it is slower, no more
  return code;
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
      : expression_(expression), code_(compile(expression)) {}

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
    MatchScratch& scratch = match_scratch();
    for (size_t at = from;; at = next_start(text, at + kStride)) {
      if (stopwatch.expired())
        fail("regular expression '", shown(expression_), "' takes more than ", kTimeLimit.count(),
             " s on a text of ", text.size(), " bytes");
      pcre2_set_offset_limit(scratch.context, next_start(text, at + kStride) - 1);
      int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              at, PCRE2_NO_UTF_CHECK, scratch.match_data, scratch.context);
      if (count == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its frames on the heap
        count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.match_data, scratch.context);
      if (count >= 0) {
        const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch.match_data);
        match = {std::min(offsets[0], offsets[1]), offsets[1]};
        return true;
      }
      if (count != PCRE2_ERROR_NOMATCH)
        fail("regular expression '", shown(expression_), "' at byte ", at, " of a text of ",
             text.size(), ": ", message_of(count));
      if (at + kStride > text.size()) return false;
    }
  }

  /// at, moved on to the start of a code point; may lie behind the text.
  static size_t next_start(std::string_view text, size_t at) {
    while (at < text.size() && utf8::is_tail(text[at])) ++at;
    return at;
  }

  std::string expression_;
  Code code_;
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

}  // namespace kvcal::tokenizers
