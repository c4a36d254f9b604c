#include "jinja/python_str.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "core/error.h"
#include "utf8proc.h"

namespace kvcal::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_of(char32_t c, std::initializer_list<utf8proc_category_t> categories) {
  return std::ranges::find(categories, category(c)) != categories.end();
}
char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
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
  if (parts.empty()) return append_code_point(out, simple_upper(c));
  for (const char32_t part : parts) append_code_point(out, simple_upper(part));
}

/// Source: Unicode's SpecialCasing.txt: the first letter is upper case, a last iota a subscript.
void append_title(Text& out, char32_t c) {
  const std::u32string parts = long_folding(c);
  if (parts.empty() || is_title(simple_title(c))) return append_code_point(out, simple_title(c));
  constexpr char32_t kIota = 0x3B9, kIotaSubscript = 0x345;
  bool has_upper = false;
  for (const char32_t part : parts) {
    const char32_t upper = has_upper ? part : simple_upper(part);
    append_code_point(out, has_upper && part == kIota ? kIotaSubscript : upper);
    has_upper |= upper != part;
  }
}

bool is_cased(char32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
}
/// Unicode's Case_Ignorable: marks, format characters, modifiers and word-internal punctuation.
bool is_case_ignorable(char32_t c) {
  constexpr std::array<char32_t, 17> kWordInternal{U'\'',  U'.',   U':',   0xB7,   0x387,  0x55F,
                                                   0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                                   0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  if (std::ranges::find(kWordInternal, c) != kWordInternal.end()) return true;
  return is_of(c, {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_CF,
                   UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_SK});
}

/// Unicode's Final_Sigma: a cased letter before, none after.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool is_cased_before = false;
  for (size_t at = begin; at > 0;) {
    const char32_t c = previous_code_point(text, at);
    if (is_case_ignorable(c)) continue;
    is_cased_before = is_cased(c);
    break;
  }
  if (!is_cased_before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

/// Lower case of the code point text[begin, end).
void append_lower(Text& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x3A3) {
    append_code_point(out, is_final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out += "i\xcc\x87";  // i and a dot above
  } else {
    append_code_point(out, simple_lower(c));
  }
}

enum class Casing { kUpper, kLower, kTitle };

template <class Choose>
Text recased(Run& run, std::string_view text, Choose&& choose) {
  run.charge(text.size() / 8);  // several look-ups a code point
  Text out = run.text();
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    switch (choose(c)) {
      case Casing::kUpper:
        append_upper(out, c);
        break;
      case Casing::kTitle:
        append_title(out, c);
        break;
      case Casing::kLower:
        append_lower(out, text, begin, at, c);
        break;
    }
  }
  return out;
}

/// Digits without the underscores that Python allows between them; nothing if one stands elsewhere.
std::optional<Text> without_underscores(Run& run, std::string_view text) {
  Text out = run.text();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
  }
  return out;
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

Vector<char32_t> code_points(Run& run, std::string_view text) {
  Vector<char32_t> result(run);
  result.reserve(utf8::length(text));
  for (size_t at = 0; at < text.size();) result.push_back(next_code_point(text, at));
  return result;
}

void append_code_point(Text& text, char32_t c) {
  if (c < 0x80)
    text.push_back(static_cast<char>(c));
  else
    text += utf8::encode(c);
}

Finder::Finder(Run& run, std::string_view wanted, bool from_end)
    : run_(run), wanted_(wanted), from_end_(from_end), fallbacks_(run) {}

void Finder::prepare() {
  fallbacks_.resize(wanted_.size());
  for (size_t i = 1, matched = 0; i < wanted_.size(); ++i) {
    while (matched > 0 && wanted_at(i) != wanted_at(matched)) matched = fallbacks_[matched - 1];
    if (wanted_at(i) == wanted_at(matched)) ++matched;
    fallbacks_[i] = static_cast<uint32_t>(matched);
  }
}

size_t Finder::find(std::string_view text) {
  if (wanted_.empty()) return from_end_ ? text.size() : 0;
  if (wanted_.size() > text.size()) return std::string_view::npos;
  if (fallbacks_.empty()) prepare();
  const size_t found = search(text);
  const size_t passed = found == std::string_view::npos ? text.size()
                        : from_end_                     ? text.size() - found
                                                        : found + wanted_.size();
  run_.charge(1 + passed / 32);  // slower than other reading
  return found;
}

size_t Finder::search(std::string_view text) {
  for (size_t i = 0, matched = 0; i < text.size(); ++i) {
    if (matched == 0 && !from_end_) {
      i = text.find(wanted_.front(), i);
      if (i == std::string_view::npos) return i;
    }
    const char c = text[from_end_ ? text.size() - 1 - i : i];
    while (matched > 0 && c != wanted_at(matched)) matched = fallbacks_[matched - 1];
    if (c == wanted_at(matched)) ++matched;
    if (matched == wanted_.size()) return from_end_ ? text.size() - 1 - i : i + 1 - matched;
  }
  return std::string_view::npos;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
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
bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  // Numeric_Type=Digit beside the decimals: superscripts, subscripts, circled and other styled
  // digits.
  struct Run {
    char32_t first, last;
  };
  constexpr std::array<Run, 20> kStyled{
      {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
       {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
       {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
       {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
       {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}}};
  return is_decimal(c) || std::ranges::any_of(kStyled, [c](const Run& run) {
           return c >= run.first && c <= run.last;
         });
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

Text to_upper(Run& run, std::string_view text) {
  return recased(run, text, [](char32_t) { return Casing::kUpper; });
}
Text to_lower(Run& run, std::string_view text) {
  return recased(run, text, [](char32_t) { return Casing::kLower; });
}
Text to_capitalized(Run& run, std::string_view text) {
  bool is_first = true;
  return recased(run, text, [&](char32_t) {
    const Casing casing = is_first ? Casing::kTitle : Casing::kLower;
    is_first = false;
    return casing;
  });
}
Text to_title(Run& run, std::string_view text) {
  bool is_inside = false;
  return recased(run, text, [&](char32_t c) {
    const Casing casing = is_inside ? Casing::kLower : Casing::kTitle;
    is_inside = is_cased(c);
    return casing;
  });
}
Text swap_case(Run& run, std::string_view text) {
  run.charge(text.size() / 8);
  Text out = run.text();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (is_upper(c))
      append_lower(out, text, begin, at, c);
    else if (is_lower(c))
      append_upper(out, c);
    else
      append_code_point(out, c);
  }
  return out;
}

namespace {

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

}  // namespace

std::string_view stripped(std::string_view text, bool left, bool right) {
  return stripped_of(text, left, right, is_space);
}

std::string_view stripped(Run& run, std::string_view text,
                          std::optional<std::string_view> characters, bool left, bool right) {
  if (!characters) return stripped(text, left, right);
  // Reading them, code point by code point, takes longer than it was paid for.
  run.charge_bytes(text.size() + characters->size());
  Vector<bool> goes(run);  // a look-up takes as long for many characters as for one
  for (size_t at = 0; at < characters->size();) {
    const char32_t c = next_code_point(*characters, at);
    if (c >= goes.size()) goes.resize(c + 1);
    goes[c] = true;
  }
  return stripped_of(text, left, right, [&](char32_t c) { return c < goes.size() && goes[c]; });
}

Values split_lines(Run& run, std::string_view text, bool keep_ends) {
  Values lines(run);
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(Value::text(text.substr(begin, (keep_ends ? at : end) - begin)));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(Value::text(text.substr(begin)));
  return lines;
}

Text repr_of(Run& run, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  Text out = run.text();
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    std::array<char, 16> escape{};
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_code_point(out, c);
    } else {
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), format, static_cast<unsigned>(c));
      out += escape.data();
    }
  }
  out += quote;
  return out;
}

std::optional<int64_t> parse_integer(Run& run, std::string_view text, int64_t base) {
  text = stripped(text);
  const std::string_view whole = text;
  if (base < 0 || base == 1 || base > 36) return std::nullopt;
  Text number = run.text(text.starts_with("-") ? "-" : "");
  if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      text.remove_prefix(2);
      if (text.starts_with("_")) text.remove_prefix(1);
      base = marked;
    } else if (base == 0 && text.find_first_not_of("0_") != std::string_view::npos) {
      return std::nullopt;
    }
  }
  const auto digits = without_underscores(run, text);
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

std::optional<double> parse_float(Run& run, std::string_view text) {
  text = stripped(text);
  const auto number = without_underscores(run, text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  if (rest[0] == '+' || rest[0] == '-') rest.remove_prefix(1);
  constexpr size_t kLongestName = 8;
  std::string name;
  for (const char c : rest.substr(0, kLongestName + 1))
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool is_named = name == "inf" || name == "infinity" || name == "nan";
  // Forms that strtod reads and Python does not: hexadecimal, "nan(…)".
  if (!is_named && rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

}  // namespace kvcal::jinja
