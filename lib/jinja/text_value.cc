#include "jinja/text_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "core/error.h"
#include "unicode/unicode.h"
#include "utf8proc.h"

namespace kvcal::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_of(char32_t c, std::initializer_list<utf8proc_category_t> categories) {
  return std::ranges::find(categories, category(c)) != categories.end();
}
char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

/// The code points that c folds to where they are several, which is where its upper and title case
/// are not single code points either (but for two that are upper case already).
std::u32string long_folding(char32_t c) {
  constexpr char32_t kCapitalDottedI = 0x130, kCapitalSharpS = 0x1E9E;
  if (c < 0x80 || c == kCapitalDottedI || c == kCapitalSharpS) return {};
  std::array<utf8proc_int32_t, 4> folded{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), folded.data(), folded.size(), UTF8PROC_CASEFOLD, &boundary);
  if (count < 2 || count > std::ssize(folded)) return {};
  return {folded.begin(), folded.begin() + count};
}

void append_upper(Text& out, char32_t c) {
  const std::u32string parts = long_folding(c);
  if (parts.empty()) out += simple_upper(c);
  for (const char32_t part : parts) out += simple_upper(part);
}

/// Of a ligature only the first letter is upper case.
void append_title(Text& out, char32_t c) {
  const auto title = static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  const std::u32string parts = long_folding(c);
  if (parts.empty() || is_title(title)) {
    out += title;
    return;
  }
  out += simple_upper(parts[0]);
  for (const char32_t part : parts.substr(1)) out += part;
}

/// Lower case of the code point text[begin, end). A sigma is a final one behind a letter and before
/// none.
void append_lower(Text& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;
  if (c == kCapitalSigma) {
    const bool is_behind_letter = begin > 0 && is_alpha(previous_code_point(text, begin));
    const bool is_final =
        is_behind_letter && (end == text.size() || !is_alpha(next_code_point(text, end)));
    out += is_final ? kFinalSigma : kSigma;
  } else if (c == 0x130) {
    out += "i\xcc\x87";  // i and a dot above
  } else {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

/// Digits without the underscores that Python allows between them; nothing if one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit_at = [&](size_t at) {
    return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1))
      return std::nullopt;
  }
  return out;
}

void add_part(Run& run, Values& parts, std::string_view part) {
  run.charge_items(1);
  parts.push_back(Value::text(part));
}

/// The first or last word of text, which neither begins nor ends with whitespace there.
std::string_view word_of(std::string_view text, bool is_last) {
  size_t cut = is_last ? text.size() : 0;
  for (size_t at = cut; is_last ? at > 0 : at < text.size(); cut = at)
    if (is_space(is_last ? previous_code_point(text, at) : next_code_point(text, at))) break;
  return is_last ? text.substr(cut) : text.substr(0, cut);
}

Values split_at_space(Run& run, std::string_view text, int64_t limit, bool from_end) {
  Values parts;
  text = stripped(text, !from_end, from_end);
  while (!text.empty()) {
    // The rest keeps its whitespace at the other end.
    const bool is_rest = limit >= 0 && static_cast<int64_t>(parts.size()) == limit;
    const std::string_view part = is_rest ? text : word_of(text, from_end);
    add_part(run, parts, part);
    if (from_end)
      text = stripped(text.substr(0, text.size() - part.size()), false, true);
    else
      text = stripped(text.substr(part.size()), true, false);
  }
  if (from_end) std::ranges::reverse(parts);
  return parts;
}

/// "abc" with "-" between and around its code points.
Text interleaved(Run& run, std::string_view text, std::string_view with, int64_t count) {
  Text out(run);
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    out += with;
    const size_t begin = at;
    if (at < text.size()) next_code_point(text, at);
    out += text.substr(begin, at - begin);
  }
  out += text.substr(at);
  return out;
}

template <class Goes>
std::string_view stripped_of(std::string_view text, bool left, bool right, const Goes& goes) {
  while (left && !text.empty()) {
    size_t at = 0;
    if (!goes(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t at = text.size();
    if (!goes(previous_code_point(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

template <class Out>
void append_quoted(Out& out, std::string_view text) {
  const char quote = text.find('\'') != kNone && text.find('"') == kNone ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    std::array<char, 16> escape{};
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, at - begin);
    } else {
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), format, static_cast<unsigned>(c));
      out += escape.data();
    }
  }
  out += quote;
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& offset) {
  const utf8::Decoded decoded = utf8::decode(text, offset);
  offset += decoded.size;
  return decoded.code_point;
}

char32_t previous_code_point(std::string_view text, size_t& offset) {
  const utf8::Decoded decoded = utf8::decode_before(text, offset);
  offset -= decoded.size;
  return decoded.code_point;
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  return at;
}

std::vector<size_t> places_of(Run& run, std::string_view text, std::string_view wanted,
                              int64_t limit, bool from_end) {
  run.charge(1 + text.size() / 32);  // slower than other reading
  const std::string text_backwards(from_end ? text.rbegin() : text.rend(), text.rend());
  const std::string wanted_backwards(from_end ? wanted.rbegin() : wanted.rend(), wanted.rend());
  std::string_view rest = from_end ? text_backwards : text;
  const std::string_view sought = from_end ? wanted_backwards : wanted;
  std::vector<size_t> places;
  for (size_t passed = 0; limit < 0 || static_cast<int64_t>(places.size()) < limit;) {
    // memmem takes linear time, which find of the library does not.
    const void* found = memmem(rest.data(), rest.size(), sought.data(), sought.size());
    if (found == nullptr) break;
    run.charge_items(1);
    run.charge();
    const auto at = static_cast<size_t>(static_cast<const char*>(found) - rest.data());
    places.push_back(from_end ? text.size() - passed - at - sought.size() : passed + at);
    passed += at + sought.size();
    rest.remove_prefix(at + sought.size());
  }
  return places;
}

std::optional<size_t> place_of(Run& run, std::string_view text, std::string_view wanted,
                               bool from_end) {
  if (wanted.empty()) return from_end ? text.size() : 0;
  const std::vector<size_t> places = places_of(run, text, wanted, 1, from_end);
  return places.empty() ? std::nullopt : std::optional(places[0]);
}

int64_t count_occurrences(Run& run, std::string_view text, std::string_view wanted) {
  return wanted.empty() ? count_code_points(text) + 1
                        : static_cast<int64_t>(places_of(run, text, wanted).size());
}

bool is_space(char32_t c) {
  return unicode::is_space(c) || (c >= 0x1C && c <= 0x1F);
}
bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  return !is_of(
      c, {UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CS, UTF8PROC_CATEGORY_CO,
          UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP, UTF8PROC_CATEGORY_ZS});
}
bool is_alpha(char32_t c) {
  const utf8proc_category_t found = category(c);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) {
  if (category(c) == UTF8PROC_CATEGORY_NO)
    fail("isdigit() of '", utf8::encode(c), "' is not supported in chat templates");
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_alnum(char32_t c) {
  const utf8proc_category_t found = category(c);
  return is_alpha(c) || (found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO);
}
bool is_lower(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_upper(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}
bool is_name_start(char32_t c) {
  if (c < 0x80) return c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  return is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}
bool is_name_part(char32_t c) {
  if (is_name_start(c)) return true;
  if (c < 0x80) return c >= '0' && c <= '9';
  return is_of(
      c, {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_PC});
}

bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  bool has_any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (unwanted(c) || is_title(c)) return false;
    has_any |= wanted(c);
  }
  return has_any;
}

Text recased(Run& run, std::string_view text, Casing casing) {
  Text out(run);
  out.reserve(text.size());
  bool is_inside = false;  // of a word, whose other letters are small
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (casing == Casing::kUpper || (casing == Casing::kTitleWords && !is_inside))
      append_upper(out, c);
    else if (casing == Casing::kLower || is_inside)
      append_lower(out, text, begin, at, c);
    else
      append_title(out, c);
    if (casing == Casing::kTitleWords)
      is_inside = !is_space(c) && std::u32string_view(U"-({[<").find(c) == kNone;
    else
      is_inside = casing == Casing::kCapitalized || is_lower(c) || is_upper(c) || is_title(c);
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  return stripped_of(text, left, right, is_space);
}

std::string_view stripped(Run& run, std::string_view text,
                          std::optional<std::string_view> characters, bool left, bool right) {
  if (!characters) return stripped(text, left, right);
  return stripped_of(text, left, right, [&](char32_t c) {
    run.charge(1 + characters->size() / 64);
    return characters->find(utf8::encode(c)) != kNone;
  });
}

Values split_text(Run& run, std::string_view text, std::optional<std::string_view> separator,
                  int64_t limit, bool from_end) {
  if (!separator) return split_at_space(run, text, limit, from_end);
  if (separator->empty()) fail("empty separator");
  std::vector<size_t> places = places_of(run, text, *separator, limit, from_end);
  if (from_end) std::ranges::reverse(places);
  Values parts;
  size_t begin = 0;
  for (const size_t place : places) {
    add_part(run, parts, text.substr(begin, place - begin));
    begin = place + separator->size();
  }
  add_part(run, parts, text.substr(begin));
  return parts;
}

Values split_lines(Run& run, std::string_view text, bool keep_ends) {
  Values lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    add_part(run, lines, text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) add_part(run, lines, text.substr(begin));
  return lines;
}

Text replaced(Run& run, std::string_view text, std::string_view old, std::string_view with,
              int64_t count) {
  if (old.empty()) {
    const int64_t most = count_code_points(text) + 1;
    const int64_t times = count < 0 ? most : std::min(count, most);
    run.check_size(text.size() + static_cast<uint64_t>(times) * with.size());
    return interleaved(run, text, with, times);
  }
  const std::vector<size_t> places = places_of(run, text, old, count);
  run.check_size(text.size() + places.size() * with.size());
  Text out(run);
  size_t begin = 0;
  for (const size_t place : places) {
    out += text.substr(begin, place - begin);
    out += with;
    begin = place + old.size();
  }
  out += text.substr(begin);
  return out;
}

Text justified(Run& run, std::string_view text, int64_t width, std::string_view fill, char align) {
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t missing =
      std::max<int64_t>(std::max<int64_t>(width, 0) - count_code_points(text), 0);
  // Python's center puts the odd place left when the width is odd.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                                      : missing / 2 + (missing & width & 1);
  Text out(run);
  out.repeat(fill, static_cast<uint64_t>(left));
  out += text;
  out.repeat(fill, static_cast<uint64_t>(missing - left));
  return out;
}

void append_repr(Text& out, std::string_view text) {
  append_quoted(out, text);
}

std::string repr_of(std::string_view text) {
  std::string out;
  append_quoted(out, message_part(text));
  return out;
}

std::optional<int64_t> short_index(std::string_view text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != kNone)
    return std::nullopt;
  return std::stoll(std::string(text));
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  text = stripped(text);
  const std::string_view whole = text;
  if (base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string number = text.starts_with("-") ? "-" : "";
  if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      text.remove_prefix(2);
      if (text.starts_with("_")) text.remove_prefix(1);
      base = marked;
    } else if (base == 0 && text.find_first_not_of("0_") != kNone) {
      return std::nullopt;
    }
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || digits->front() == '-' || digits->front() == '+')
    return std::nullopt;
  number += *digits;
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), value,
                                              base == 0 ? 10 : static_cast<int>(base));
  if (end != number.data() + number.size()) return std::nullopt;
  if (problem == std::errc::result_out_of_range) fail("integer ", whole, " is past 64 signed bits");
  return problem == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  const auto number = without_underscores(stripped(text));
  if (!number || number->empty()) return std::nullopt;
  std::string name;
  for (const char c : number->substr(0, 10))
    if (c != '+' && c != '-')
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_named = name == "inf" || name == "infinity" || name == "nan";
  // Forms that strtod reads and Python does not: hexadecimal, "nan(…)".
  if (!is_named && number->find_first_not_of("0123456789.eE+-") != kNone) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

}  // namespace kvcal::jinja
