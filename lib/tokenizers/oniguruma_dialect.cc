#include <array>
#include <cctype>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tokenizers/pattern.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

constexpr int kMaxDepth = 50;

/// Members of a character class, as PCRE2 writes them between brackets.
constexpr std::string_view kSpaceItems =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
/// Characters of Oniguruma's \w beyond its categories.
constexpr std::string_view kWordExtras =
    "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{"
    "1f169}"
    "\\x{1f170}-\\x{1f189}";

std::string hex_item(char32_t c) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "\\x{%x}", static_cast<unsigned>(c));
  return buffer.data();
}

/// Property names of Oniguruma that PCRE2 calls otherwise.
std::string property_name(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kRenamed{{
      {"Alpha", "Alphabetic"},
      {"Digit", "Nd"},
      {"Upper", "Uppercase"},
      {"Lower", "Lowercase"},
      {"Space", "White_Space"},
      {"Letter", "L"},
      {"Mark", "M"},
      {"Number", "N"},
      {"Punctuation", "P"},
      {"Symbol", "S"},
      {"Separator", "Z"},
      {"Other", "C"},
  }};
  for (const auto& [from, to] : kRenamed)
    if (name == from) return std::string(to);
  constexpr std::array<std::string_view, 9> kBinary{
      "Any",         "Alphabetic",         "Uppercase",
      "Lowercase",   "White_Space",        "Emoji",
      "Ideographic", "Emoji_Presentation", "Extended_Pictographic"};
  for (const std::string_view binary : kBinary)
    if (name == binary) return name;
  // PCRE2 takes a bare script name for the script extensions, Oniguruma for the script.
  return name.size() > 2 ? "sc:" + name : name;
}

/// Items for \p{name}: PCRE2's own set and what Unicode has added to it since.
std::string property_items(const std::string& oniguruma_name) {
  const std::string name = property_name(oniguruma_name);
  std::string items = "\\p{" + name + "}";
  if (name == "sc:Han")
    return items + "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}\\x{16ff2}-\\x{16ff6}";
  if (name.size() <= 2 && name[0] != 'C')
    for (const auto& [first, last] : unicode::assigned_after_unicode_14(name))
      items += hex_item(first) + (first == last ? "" : "-" + hex_item(last));
  return items;
}

std::string word_items() {
  std::string items;
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) items += property_items(name);
  return items + std::string(kWordExtras);
}

/// Items for [:name:]. Oniguruma counts symbols as punctuation, PCRE2 only ASCII's.
std::string bracket_items(const std::string& name) {
  if (name == "alpha" || name == "upper" || name == "lower")
    return name == "alpha"   ? "\\p{Alphabetic}"
           : name == "upper" ? "\\p{Uppercase}"
                             : "\\p{Lowercase}";
  if (name == "digit") return property_items("Nd");
  if (name == "alnum") return "\\p{Alphabetic}" + property_items("Nd");
  if (name == "punct") return property_items("P") + property_items("S");
  if (name == "space") return std::string(kSpaceItems);
  if (name == "blank") return "\\x09\\p{Zs}";
  if (name == "cntrl") return "\\p{Cc}";
  if (name == "xdigit") return "0-9a-fA-F";
  if (name == "word") return word_items();
  fail("[:", name, ":] is not supported");
}

/// One escape sequence: a set of characters (items, perhaps negated), or text that stands for
/// itself.
struct Escape {
  std::string items = {};  ///< not empty for a set
  bool is_negated = false;
  std::string text = {};  ///< what to emit when it is no set
};

class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source) {}

  std::string run() {
    while (at_ < source_.size()) step();
    return std::move(out_);
  }

 private:
  bool has(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  char peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }
  char take() {
    if (at_ >= source_.size()) fail("it ends too early");
    return source_[at_++];
  }

  void step() {
    const char c = take();
    if (c == '\\') return outside_escape();
    if (c == '[') return atom(character_class(0));
    if (c == '(') return open_group();
    if (c == '{') return interval();
    if (c == ')') {
      if (groups_.empty()) fail("')' at byte ", at_ - 1, " closes nothing");
      atom_ = groups_.back();
      groups_.pop_back();
    } else if (c != '|' && c != '*' && c != '+' && c != '?') {
      atom_ = out_.size();
    }
    out_ += c;
    while (utf8::is_tail(peek())) out_ += take();
  }

  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
  }

  void open_group() {
    groups_.push_back(out_.size());
    out_ += '(';
    // A callout here, and one of PCRE2's verbs there.
    if (peek() == '*') fail("'(*' is not supported");
    if (peek() != '?') return;
    out_ += take();
    const size_t flags_begin = at_;
    // In Ruby's syntax m lets the dot match newlines, which is s elsewhere.
    while (std::isalpha(static_cast<unsigned char>(peek())) || peek() == '-') {
      const char flag = take();
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-')
        fail("'(?", flag, "' is not supported");
      out_ += flag == 'm' ? 's' : flag;
    }
    // PCRE2 knows further groups, such as recursion, which are none here.
    const std::string_view known = at_ > flags_begin ? ":)" : ":=!><#('";
    if (at_ == source_.size() || known.find(peek()) == std::string_view::npos)
      fail("'(?", source_.substr(flags_begin, at_ + 1 - flags_begin), "' is not supported");
  }

  /// {n,m}: PCRE2 reads a following + as possessive, Ruby as one more repetition; likewise ? after
  /// {n}.
  void interval() {
    const size_t close = source_.find('}', at_);
    const std::string body(close == std::string_view::npos ? "" : source_.substr(at_, close - at_));
    const size_t comma = body.find(',');
    const std::string low = body.substr(0, comma),
                      high = comma == std::string::npos ? low : body.substr(comma + 1);
    if (body.empty() || body == "," ||
        (low + high).find_first_not_of("0123456789") != std::string::npos)
      return atom("\\{");
    at_ = close + 1;
    std::string text =
        "{" + (low.empty() ? "0" : low) + (comma == std::string::npos ? "" : "," + high) + "}";
    if (peek() == '+' || (peek() == '?' && comma == std::string::npos)) {
      out_.insert(atom_, "(?:");
      text += ")";
    }
    out_ += text;
  }

  void outside_escape() {
    if (peek() == 'b' || peek() == 'B') {
      const bool inside = take() == 'B';
      const std::string word = "[" + word_items() + "]";
      atom(inside ? "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
                  : "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      return;
    }
    const Escape escape = read_escape(false);
    if (escape.items.empty()) return atom(escape.text);
    atom((escape.is_negated ? "[^" : "[") + escape.items + "]");
  }

  std::string property(bool is_negated, Escape& escape) {
    if (take() != '{') fail("\\p needs a name in braces");
    const size_t close = source_.find('}', at_);
    if (close == std::string_view::npos || close - at_ > 40) fail("\\p{ is not closed");
    std::string name(source_.substr(at_, close - at_));
    at_ = close + 1;
    escape.is_negated = is_negated;
    if (name.starts_with('^')) {
      escape.is_negated = !escape.is_negated;
      name.erase(0, 1);
    }
    for (const char c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '&')
        fail("\\p{", name, "} is unknown");
    if (name.empty()) fail("\\p{} names no property");
    return property_items(name);
  }

  Escape read_escape(bool in_class) {
    const char c = take();
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    Escape escape{.is_negated = c != lower};
    if (lower == 'p')
      escape.items = property(c == 'P', escape);
    else if (lower == 's')
      escape.items = kSpaceItems;
    else if (lower == 'w')
      escape.items = word_items();
    else if (lower == 'd')
      escape.items = property_items("Nd");
    else if (lower == 'h')
      escape.items = "0-9a-fA-F";
    else if (c == 'v')
      escape.text = "\\x0b";
    else if (c == 'u' || (c == 'x' && peek() == '{'))
      escape.text = code_point();
    else if (c == 'x')
      escape.text = "\\x" + hex_digits(2);
    else if (c == 'b' && in_class)
      escape.text = "\\x08";
    if (!escape.items.empty() || !escape.text.empty()) return escape;
    const std::string_view plain = in_class ? "ntrfae0" : "ntrfaeAzZGRXKkg0123456789";
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word && plain.find(c) == std::string_view::npos) fail("\\", c, " is not supported");
    escape.text = std::string("\\") + c;
    if (static_cast<unsigned char>(c) >= 0x80) escape.text = std::string(1, c);
    return escape;
  }

  std::string hex_digits(size_t most) {
    std::string digits;
    while (digits.size() < most && std::isxdigit(static_cast<unsigned char>(peek())))
      digits += take();
    if (digits.empty()) fail("\\x needs hexadecimal digits");
    return digits;
  }
  std::string code_point() {
    const bool braced = peek() == '{';
    if (braced) take();
    const std::string digits = hex_digits(braced ? 8 : 4);
    if (braced && take() != '}') fail("\\x{ is not closed");
    return "\\x{" + digits + "}";
  }

  /// An operand between two && of a class.
  struct Operand {
    std::string items;                ///< members, as PCRE2 writes them
    std::vector<std::string> nested;  ///< whole expressions that match one character each
    std::string text() const {
      if (nested.empty()) return items.empty() ? "(?!)" : "[" + items + "]";
      std::string all = items.empty() ? "" : "[" + items + "]";
      for (const std::string& one : nested) all += (all.empty() ? "" : "|") + one;
      return "(?:" + all + ")";
    }
  };

  /// Reads a class, behind its '['. PCRE2 has neither nested classes nor intersections.
  std::string character_class(int depth) {
    if (depth > kMaxDepth) fail("character classes nest deeper than ", kMaxDepth);
    const bool is_negated = peek() == '^';
    if (is_negated) take();
    std::vector<Operand> operands(1);
    bool after_set = true;  // a '-' here cannot be a range's
    for (bool first = true;; first = false) {
      if (peek() == ']' && !first) break;
      if (peek() == ']' && source_.find(']', at_ + 1) == std::string_view::npos)
        fail("empty character class");
      if (has("&&")) {
        at_ += 2;
        operands.emplace_back();
        after_set = true;
        continue;
      }
      member(operands.back(), depth, after_set);
    }
    take();
    const bool is_plain = operands.size() == 1 && operands[0].nested.empty();
    if (is_plain && is_negated) return "[^" + operands[0].items + "]";
    std::string all;
    for (size_t i = 0; i < operands.size(); ++i)
      all += i + 1 < operands.size() ? "(?=" + operands[i].text() + ")" : operands[i].text();
    if (is_negated) return "(?:(?!" + all + ")(?s:.))";
    return operands.size() == 1 ? all : "(?:" + all + ")";
  }

  /// [:name:] and [:^name:].
  void bracket(Operand& operand) {
    const size_t close = source_.find(":]", at_);
    if (close == std::string_view::npos || close - at_ > 12) fail("[: is not closed");
    std::string name(source_.substr(at_ + 1, close - at_ - 1));
    at_ = close + 2;
    const bool is_negated = name.starts_with('^');
    if (is_negated) name.erase(0, 1);
    const std::string items = bracket_items(name);
    if (is_negated)
      operand.nested.push_back("[^" + items + "]");
    else
      operand.items += items;
  }

  void member(Operand& operand, int depth, bool& after_set) {
    const char c = take();
    if (c == '[' && peek() == ':') {
      bracket(operand);
      after_set = true;
    } else if (c == '[') {
      operand.nested.push_back(character_class(depth + 1));
      after_set = true;
    } else if (c == '\\') {
      const Escape escape = read_escape(true);
      if (escape.items.empty())
        operand.items += escape.text;
      else if (escape.is_negated)
        operand.nested.push_back("[^" + escape.items + "]");
      else
        operand.items += escape.items;
      after_set = !escape.items.empty();
    } else if (c == '-') {
      const bool before_set = peek() == ']' || peek() == '[' || has("&&") || has("\\p") ||
                              has("\\P") || has("\\s") || has("\\S") || has("\\w") || has("\\W") ||
                              has("\\d") || has("\\D");
      operand.items += after_set || before_set ? "\\-" : "-";
      after_set = after_set || before_set;
    } else {
      operand.items += c == ']' || c == '^' || c == '&' ? std::string("\\") + c : std::string(1, c);
      after_set = false;
    }
  }

  std::string_view source_;
  size_t at_ = 0, atom_ = 0;
  std::string out_;
  std::vector<size_t> groups_;
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view expression) {
  return Translator(expression).run();
}

}  // namespace kvcal::tokenizers
