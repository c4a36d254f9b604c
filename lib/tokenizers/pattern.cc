#include "tokenizers/pattern.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/pcre2_regex.h"
#include "core/utf8.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// Expressions come from strangers. One attempt at one position may take kMatchLimit steps, and one
/// text kMostWork, which takes some ten seconds. kStride positions are tried at a time.
constexpr uint32_t kMatchLimit = 5'000'000;
constexpr RegexOptions kOptions{.is_multiline = true,
                                .is_jitted = true,
                                .trusts_text = true,
                                .max_nesting = 100,
                                .max_steps = kMatchLimit,
                                .max_depth = kMatchLimit,
                                .max_heap_kib = 256 * 1024,
                                .counts_work = true};
constexpr size_t kStride = 512;
constexpr uint64_t kMostWork = 2'000'000'000;
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

class Regex : public Pattern {
 public:
  explicit Regex(std::string_view expression)
      : expression_(expression), regex_(compile(expression)) {}

  void for_each(std::string_view text, Visitor<Span> visit) const override {
    RegexWork work{.most = kMostWork};
    size_t at = 0, previous_end = 0;
    bool has_previous = false;
    Span match;
    while (at <= text.size() && find(text, at, work, match)) {
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
  bool find(std::string_view text, size_t from, RegexWork& work, Span& match) const {
    for (size_t at = from;; at = next_start(text, at + kStride)) {
      try {
        if (const auto found = regex_.find(text, at, next_start(text, at + kStride) - 1, &work)) {
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

namespace {

/// Joins the alternating parts of a text, matches and what is between, as a behaviour says, and
/// hands out what results, in order. Parts come from left to right without gaps.
class Splitter {
 public:
  Splitter(Behaviour behaviour, Visitor<Span> out) : behaviour_(behaviour), out_(out) {}

  void add(Span part, bool is_match) {
    if (behaviour_ == Behaviour::kIsolated || (behaviour_ == Behaviour::kRemoved && !is_match))
      return out_(part);
    if (behaviour_ == Behaviour::kRemoved) return;
    const bool was_match = std::exchange(was_match_, is_match);
    const bool joins = behaviour_ == Behaviour::kContiguous           ? is_match == was_match
                       : behaviour_ == Behaviour::kMergedWithPrevious ? is_match && !was_match
                                                                      : !is_match && was_match;
    if (joins && pending_) {
      pending_->end = part.end;
      return;
    }
    flush();
    pending_ = part;
  }
  void flush() {
    if (pending_) out_(*pending_);
  }

 private:
  Behaviour behaviour_;
  Visitor<Span> out_;
  std::optional<Span> pending_;
  bool was_match_ = false;
};

}  // namespace

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
  splitter.flush();
}

namespace {

/// The classes of characters that the well-known split expressions distinguish.
enum class Kind : uint8_t { kOther, kLetter, kMark, kNumber, kSpace, kNewline };

Kind kind_of(char32_t c) {
  if (c == '\n' || c == '\r') return Kind::kNewline;
  if (unicode::is_space(c)) return Kind::kSpace;
  const unicode::Category category = unicode::category(c);
  if (unicode::is_letter(category)) return Kind::kLetter;
  if (unicode::is_mark(category)) return Kind::kMark;
  return unicode::is_number(category) ? Kind::kNumber : Kind::kOther;
}

const std::array<Kind, 128>& ascii_kinds() {
  static const std::array<Kind, 128> kKinds = [] {
    std::array<Kind, 128> kinds{};
    for (char32_t c = 0; c < 128; ++c) kinds[c] = kind_of(c);
    return kinds;
  }();
  return kKinds;
}

/// One pass over a text. Every code point belongs to a match, so a match begins where the last one
/// ended.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text), ascii_(ascii_kinds()) {}

  std::string_view text() const { return text_; }
  struct Step {
    Kind kind = Kind::kOther;
    size_t end = 0;
  };
  Step at(size_t position) const {
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {ascii_[byte], position + 1};
    const unicode::Decoded decoded = unicode::decode(text_, position);
    return {kind_of(decoded.code_point), position + decoded.size};
  }
  /// End of the run, from position on, of kinds that is_member accepts.
  template <class IsMember>
  size_t run(size_t position, IsMember is_member) const {
    while (position < text_.size()) {
      const Step step = at(position);
      if (!is_member(step.kind)) break;
      position = step.end;
    }
    return position;
  }
  static bool is_blank(Kind kind) { return kind == Kind::kSpace || kind == Kind::kNewline; }

  /// End of one of 's 't 're 've 'm 'll 'd at an apostrophe, or position when there is none.
  size_t contraction(size_t position, bool ignores_case) const {
    const auto letter = [&](size_t i) -> char {
      if (i >= text_.size()) return '\0';
      const char c = text_[i];
      return ignores_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(position + 1), second = letter(position + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return position + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
      return position + 3;
    // U+017F, the long s, is a case variant of s.
    if (ignores_case && text_.substr(position + 1).starts_with("\xc5\xbf")) return position + 3;
    return position;
  }
  /// \s+(?!\S)|\s+ : a run of spaces leaves its last one to the word that follows.
  size_t blanks(size_t position) const {
    const size_t end = run(position, is_blank);
    if (end == text_.size()) return end;
    const size_t before_last = end - unicode::decode_before(text_, end).size;
    return before_last > position ? before_last : end;
  }

 private:
  std::string_view text_;
  const std::array<Kind, 128>& ascii_;
};

/// The end of the match that begins at position, of
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_end(const Scan& scan, size_t position) {
  const std::string_view text = scan.text();
  if (text[position] == '\'')
    if (const size_t end = scan.contraction(position, false); end > position) return end;
  const auto class_of = [](Kind kind) { return kind == Kind::kMark ? Kind::kOther : kind; };
  Scan::Step step = scan.at(position);
  if (text[position] == ' ' && step.end < text.size())
    if (const Scan::Step next = scan.at(step.end); !Scan::is_blank(next.kind)) step = next;
  if (Scan::is_blank(step.kind)) return scan.blanks(position);
  return scan.run(step.end,
                  [&, own = class_of(step.kind)](Kind kind) { return class_of(kind) == own; });
}

/// The same of (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
/// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+| \s+(?!\S)|\s+ with kDigits numbers in a match; with kMarks,
/// marks count as letters after the first place.
template <int kDigits, bool kMarks>
size_t tiktoken_end(const Scan& scan, size_t position) {
  const std::string_view text = scan.text();
  const auto is_wordy = [](Kind k) { return k == Kind::kLetter || (kMarks && k == Kind::kMark); };
  const auto is_symbol = [](Kind k) { return k == Kind::kOther || (!kMarks && k == Kind::kMark); };
  const auto symbols = [&](size_t at) {
    return scan.run(scan.run(at, is_symbol), [](Kind k) { return k == Kind::kNewline; });
  };
  if (text[position] == '\'')
    if (const size_t end = scan.contraction(position, true); end > position) return end;
  const Scan::Step step = scan.at(position);
  if (is_wordy(step.kind)) return scan.run(step.end, is_wordy);
  if (step.kind == Kind::kNumber) {
    int taken = 0;
    return scan.run(position, [&](Kind k) { return k == Kind::kNumber && taken++ < kDigits; });
  }
  if (step.kind != Kind::kNewline && step.end < text.size()) {
    const Scan::Step next = scan.at(step.end);
    if (is_wordy(next.kind)) return scan.run(next.end, is_wordy);
    if (text[position] == ' ' && is_symbol(next.kind)) return symbols(next.end);
  }
  if (is_symbol(step.kind)) return symbols(step.end);
  const size_t end = scan.run(position, Scan::is_blank);
  const size_t newline = text.substr(position, end - position).find_last_of("\r\n");
  return newline == std::string_view::npos ? scan.blanks(position) : position + newline + 1;
}

template <size_t (*end_of)(const Scan& scan, size_t position)>
class Scanner : public Pattern {
 public:
  void for_each(std::string_view text, Visitor<Span> visit) const override {
    const Scan scan(text);
    for (size_t at = 0; at < text.size();) {
      const size_t end = end_of(scan, at);
      visit({at, end});
      at = end;
    }
  }
};

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?)";
constexpr std::string_view kLetters = R"(\p{L}+|)", kLettersAndMarks = R"([\p{L}\p{M}]+|)";
constexpr std::string_view kOneDigit = R"(\p{N}|)", kThreeDigits = R"(\p{N}{1,3}|)";
constexpr std::string_view kTail = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTailWithMarks =
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string joined(std::string_view a, std::string_view b, std::string_view c, std::string_view d) {
  return std::string(a).append(b).append(c).append(d);
}

}  // namespace

std::unique_ptr<Pattern> make_scanner(std::string_view expression) {
  if (expression == kGpt2) return std::make_unique<Scanner<gpt2_end>>();
  if (expression == joined(kHead, kLetters, kThreeDigits, kTail))
    return std::make_unique<Scanner<tiktoken_end<3, false>>>();
  if (expression == joined(kHead, kLetters, kOneDigit, kTail))
    return std::make_unique<Scanner<tiktoken_end<1, false>>>();
  if (expression == joined(kHead, kLettersAndMarks, kOneDigit, kTailWithMarks))
    return std::make_unique<Scanner<tiktoken_end<1, true>>>();
  return nullptr;
}

}  // namespace kvcal::tokenizers
