#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/pcre2_regex.h"
#include "jinja/syntax.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

/// "\r\n" and "\r" become "\n"; one newline at the end is dropped (keep_trailing_newline is off).
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// The escape at inner[at], just behind its backslash; at moves behind it.
void append_escape(std::string& out, std::string_view inner, size_t& at) {
  const char kind = inner[at++];
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  const auto append_number = [&](size_t digits, int base, bool must_be_complete) {
    const auto is_digit = [&](char c) {
      return base == 8 ? is_octal(c) : std::isxdigit(static_cast<unsigned char>(c)) != 0;
    };
    size_t end = at;
    while (end < inner.size() && end < at + digits && is_digit(inner[end])) ++end;
    if (must_be_complete && end != at + digits)
      fail("the escape \\", kind, " needs ", digits, " hexadecimal digits");
    uint32_t code_point = 0;
    std::from_chars(inner.data() + at, inner.data() + end, code_point, base);
    if (code_point > 0x10FFFF) fail("the escape \\", kind, " is past the last code point");
    if (code_point >= 0xD800 && code_point <= 0xDFFF)
      fail("the escape \\", kind, " makes half a surrogate pair, which UTF-8 cannot hold");
    utf8::append(out, code_point);
    at = end;
  };
  constexpr std::string_view kKinds = "abfnrtv\\'\"", kCharacters = "\a\b\f\n\r\t\v\\'\"";
  if (kind == '\n') return;
  if (const size_t i = kKinds.find(kind); i != kNowhere) {
    out += kCharacters[i];
    return;
  }
  if (kind == 'x' || kind == 'u' || kind == 'U')
    return append_number(kind == 'x' ? 2 : kind == 'u' ? 4 : 8, 16, true);
  if (kind == 'N') fail("escapes by name, \\N{…}, are not supported");
  if (is_octal(kind)) {
    --at;
    return append_number(3, 8, false);
  }
  if (static_cast<unsigned char>(kind) >= 0x80)
    fail("a backslash before a character that is not ASCII is not supported");
  out += '\\';
  out += kind;
}

/// A string literal's inner text with its escapes resolved as Python does. Throws Error for an
/// escape that is cut short, out of range, or makes half a surrogate pair.
std::string unescaped(std::string_view inner) {
  std::string out;
  for (size_t at = 0; at < inner.size();) {
    const size_t backslash = inner.find('\\', at);
    out += inner.substr(at, backslash == kNowhere ? kNowhere : backslash - at);
    if (backslash == kNowhere) break;
    at = backslash + 1;
    append_escape(out, inner, at);
  }
  return out;
}

/// Source: Jinja2 3.1, lexer.py, float_re and integer_re.
const auto& number_expressions() {
  static const std::array<std::pair<TokenType, Pcre2Regex>, 2> kExpressions = [] {
    constexpr RegexOptions kOptions{.is_anchored = true,
                                    .trusts_text = true,
                                    .max_steps = 1'000'000,
                                    .max_depth = 1'000'000,
                                    .max_heap_kib = 64 * 1024};
    return std::array<std::pair<TokenType, Pcre2Regex>, 2>{
        std::pair{TokenType::kFloat,
                  Pcre2Regex(R"((?<!\.)(?<digits>[0-9]+(?:_[0-9]+)*))"
                             R"((?:(?:\.(?&digits))?[eE][+-]?(?&digits)|\.(?&digits)))",
                             kOptions)},
        std::pair{TokenType::kInteger,
                  Pcre2Regex("0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|"
                             "[1-9][0-9]*(?:_[0-9]+)*|0+(?:_0+)*",
                             kOptions)}};
  }();
  return kExpressions;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(list_.texts.emplace_back(normalized(source))) {}

  TokenList run() {
    while (at_ < text_.size()) read_data();
    add(TokenType::kEnd, {});
    return std::move(list_);
  }

 private:
  /// A tag's opening as found in data: where it starts and ends, its sign, whether it opens raw
  /// text.
  struct Opening {
    size_t begin = 0, end = 0;
    char kind = 0;  ///< '{' variable, '%' block, '#' comment
    char sign = 0;  ///< '-', '+' or 0
    std::optional<size_t> raw_end = {};
  };

  [[noreturn]] void stop(const std::string& what) const { fail("line ", line_, ": ", what); }
  void add(TokenType type, std::string_view text) { list_.tokens.push_back({type, line_, text}); }
  bool starts_with(std::string_view symbol) const { return text_.substr(at_).starts_with(symbol); }

  /// Moves to end, counting lines and remembering whether what was read ends a line.
  void advance(size_t end) {
    const std::string_view passed = text_.substr(at_, end - at_);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) is_line_start_ = passed.back() == '\n';
    at_ = end;
  }
  size_t skip_space(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(text_, next))) break;
      at = next;
    }
    return at;
  }

  /// The end of a tag's closing at `at`, with the whitespace and line break that it takes; nothing
  /// if it is not there. is_block: of a block's, not of raw's first tag.
  std::optional<size_t> end_of_tag(size_t at, std::string_view close, bool is_block) const {
    const std::string_view rest = text_.substr(at);
    if (rest.starts_with('-') && rest.substr(1).starts_with(close)) return skip_space(at + 3);
    if (is_block && rest.starts_with('+') && rest.substr(1).starts_with(close)) return at + 3;
    if (!rest.starts_with(close)) return std::nullopt;
    return is_block && rest.substr(2).starts_with('\n') ? at + 3 : at + 2;
  }

  /// The end of "raw %}" or "endraw %}", word starting at `at` after optional space; nothing if it
  /// is not there.
  std::optional<size_t> end_of_marker(size_t at, std::string_view word, bool is_closing) const {
    at = skip_space(at);
    if (!text_.substr(at).starts_with(word)) return std::nullopt;
    return end_of_tag(skip_space(at + word.size()), "%}", is_closing);
  }

  std::optional<Opening> find_opening() const {
    for (size_t at = text_.find('{', at_); at != kNowhere && at + 1 < text_.size();
         at = text_.find('{', at + 1)) {
      const char kind = text_[at + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      Opening opening{.begin = at, .end = at + 2, .kind = kind};
      if (opening.end < text_.size() && (text_[opening.end] == '-' || text_[opening.end] == '+'))
        opening.sign = text_[opening.end++];
      if (kind == '%') opening.raw_end = end_of_marker(opening.end, "raw", false);
      return opening;
    }
    return std::nullopt;
  }

  /// Data before a tag, with what the tag's sign or lstrip_blocks takes from its end.
  std::string_view trimmed_data(std::string_view data, char kind, char sign) const {
    if (sign == '-') return stripped(data, false, true);
    if (sign == '+' || kind == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t start = newline == kNowhere ? 0 : newline + 1;
    if (start == 0 && !is_line_start_) return data;
    return stripped(data.substr(start), true, false).empty() ? data.substr(0, start) : data;
  }

  void read_data() {
    const std::optional<Opening> opening = find_opening();
    if (!opening) {
      add(TokenType::kData, text_.substr(at_));
      advance(text_.size());
      return;
    }
    const std::string_view data =
        trimmed_data(text_.substr(at_, opening->begin - at_), opening->kind, opening->sign);
    if (!data.empty()) add(TokenType::kData, data);
    advance(opening->raw_end.value_or(opening->end));
    if (opening->raw_end)
      read_raw();
    else if (opening->kind == '#')
      read_comment();
    else
      read_tag(opening->kind == '%');
  }

  void read_raw() {
    for (size_t at = text_.find("{%", at_); at != kNowhere; at = text_.find("{%", at + 1)) {
      size_t after = at + 2;
      char sign = 0;
      if (after < text_.size() && (text_[after] == '-' || text_[after] == '+'))
        sign = text_[after++];
      const std::optional<size_t> end = end_of_marker(after, "endraw", true);
      if (!end) continue;
      const std::string_view data = trimmed_data(text_.substr(at_, at - at_), '%', sign);
      if (!data.empty()) add(TokenType::kData, data);
      advance(*end);
      return;
    }
    if (at_ < text_.size()) stop("a raw block is not closed by endraw");
  }

  void read_comment() {
    const size_t close = text_.find("#}", at_);
    if (close == kNowhere) {
      if (at_ < text_.size()) stop("a comment is not closed by #}");
      return;
    }
    size_t end = close + 2;
    const char sign = close > at_ ? text_[close - 1] : '\0';
    if (sign == '-')
      end = skip_space(end);
    else if (sign != '+' && end < text_.size() && text_[end] == '\n')
      ++end;
    advance(end);
  }

  /// Takes the tag's end, if it is here: braces that are open keep "}}" an operator.
  bool read_end(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    const auto end = open_.empty() ? end_of_tag(at_, close, is_block) : std::nullopt;
    if (!end) return false;
    add(is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, text_.substr(at_, 2));
    advance(*end);
    return true;
  }

  void read_tag(bool is_block) {
    add(is_block ? TokenType::kBlockBegin : TokenType::kVariableBegin, {});
    open_.clear();
    while (at_ < text_.size()) {
      if (read_end(is_block)) return;
      const size_t after_space = skip_space(at_);
      if (after_space != at_) {
        advance(after_space);
        continue;
      }
      read_inner_token();
    }
    // The parser names what follows the last token: an end where more was expected.
  }

  void read_inner_token() {
    const std::string_view rest = text_.substr(at_);
    if (rest[0] == '\'' || rest[0] == '"') return read_string();
    for (const auto& [type, expression] : number_expressions())
      if (const auto found = expression.find(text_, at_)) return take(type, found->second - at_);
    size_t end = 0;
    for (size_t next = 0; next < rest.size() && is_name_part(next_code_point(rest, next));
         end = next) {
    }
    if (end > 0) {
      size_t first = 0;
      if (!is_name_start(next_code_point(rest, first)))
        stop("a name cannot start with '" + std::string(rest.substr(0, first)) + "'");
      return take(TokenType::kName, end);
    }
    read_operator(rest);
  }

  void take(TokenType type, size_t length) {
    add(type, text_.substr(at_, length));
    advance(at_ + length);
  }

  void read_string() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) stop("a string literal is not closed");
    const std::string_view inner = text_.substr(at_ + 1, end - at_ - 1);
    if (inner.find('\\') == kNowhere)
      add(TokenType::kString, inner);
    else
      add(TokenType::kString,
          list_.texts.emplace_back(
              in_context("line " + std::to_string(line_), [&] { return unescaped(inner); })));
    advance(end + 1);
  }

  void read_operator(std::string_view rest) {
    constexpr auto kOperators = std::to_array<std::string_view>(
        {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"});
    const auto* symbol = std::ranges::find_if(
        kOperators, [&](std::string_view known) { return rest.starts_with(known); });
    if (symbol == kOperators.end()) {
      size_t next = 0;
      next_code_point(rest, next);
      stop("unexpected character '" + std::string(rest.substr(0, next)) + "'");
    }
    balance(symbol->front());
    take(TokenType::kOperator, symbol->size());
  }

  void balance(char symbol) {
    if (symbol == '(' || symbol == '[' || symbol == '{') {
      open_ += symbol == '(' ? ')' : symbol == '[' ? ']' : '}';
    } else if (symbol == ')' || symbol == ']' || symbol == '}') {
      if (open_.empty()) stop(std::string("unexpected '") + symbol + "'");
      if (open_.back() != symbol)
        stop(std::string("unexpected '") + symbol + "', expected '" + open_.back() + "'");
      open_.pop_back();
    }
  }

  TokenList list_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool is_line_start_ = true;
  std::string open_;  ///< the brackets that wait to be closed
};

}  // namespace

TokenList tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::string described(const Token& token) {
  // The order is that of TokenType; the other tokens are shown as they stand.
  constexpr auto kNames =
      std::to_array<std::string_view>({"template text", "'{{'", "'}}'", "'{%'", "'%}'",
                                       "the end of the template", "a string literal"});
  const auto type = static_cast<size_t>(token.type);
  return type < kNames.size() ? std::string(kNames[type]) : "'" + std::string(token.text) + "'";
}

}  // namespace kvcal::jinja
