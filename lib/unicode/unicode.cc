#include "unicode/unicode.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <utf8proc.h>

#include "core/error.h"
#include "unicode/unicode_tables.h"

namespace kvcal::unicode {
namespace {

namespace tables = unicode_tables;
constexpr char32_t kEnd = 0x110000;

/// Bits beside the category, for properties that are not quite a category.
struct Properties {
  std::array<uint8_t, kEnd> category;
  std::vector<bool> word = std::vector<bool>(kEnd), punctuation = word, numeric = word,
                    combining = word, nonspacing = word, control = word, frozen = word;
};

Ranges ranges_of(const uint32_t* gaps, size_t count) {
  Ranges result;
  char32_t at = 0;
  for (size_t i = 0; i + 1 < count; i += 2) {
    const char32_t first = at + gaps[i];
    at = first + gaps[i + 1];
    result.emplace_back(first, at - 1);
  }
  return result;
}

void flip(std::vector<bool>& property, const uint32_t* gaps, size_t count) {
  for (const auto& [first, last] : ranges_of(gaps, count))
    for (char32_t c = first; c <= last; ++c) property[c] = !property[c];
}

std::unique_ptr<const Properties> build() {
  auto result = std::make_unique<Properties>();
  Properties& p = *result;
  char32_t at = 0;
  for (size_t i = 0; i < tables::kCategoryRunsCount; ++i) {
    const uint32_t run = tables::kCategoryRuns[i];
    const auto c = static_cast<Category>(run % 32);
    KVCAL_CHECK(at + run / 32 <= kEnd);
    std::fill_n(p.category.begin() + at, run / 32, static_cast<uint8_t>(c));
    const bool letter = is_letter(c), mark = is_mark(c), number = is_number(c);
    const bool punctuation = c >= Category::kPc && c <= Category::kPo;
    const bool other = c == Category::kCc || c == Category::kCf || c == Category::kCo;
    for (char32_t point = at; point < at + run / 32; ++point) {
      const bool ascii_symbol = point < 0x80 && c >= Category::kSm && c <= Category::kSo;
      p.word[point] =
          letter || mark || c == Category::kNd || c == Category::kNl || c == Category::kPc;
      p.punctuation[point] = punctuation || ascii_symbol;
      p.numeric[point] = number;
      p.combining[point] = mark;
      p.nonspacing[point] = c == Category::kMn;
      p.control[point] = other && point != '\t' && point != '\n' && point != '\r';
    }
    at += run / 32;
  }
  KVCAL_CHECK(at == kEnd);
  flip(p.word, tables::kWordDiffers, tables::kWordDiffersCount);
  flip(p.punctuation, tables::kPunctuationDiffers, tables::kPunctuationDiffersCount);
  flip(p.numeric, tables::kNumericDiffers, tables::kNumericDiffersCount);
  flip(p.combining, tables::kCombiningMarkDiffers, tables::kCombiningMarkDiffersCount);
  flip(p.nonspacing, tables::kNonspacingMarkDiffers, tables::kNonspacingMarkDiffersCount);
  flip(p.control, tables::kControlDiffers, tables::kControlDiffersCount);
  flip(p.frozen, tables::kFrozen, tables::kFrozenCount);
  return result;
}

const Properties& properties() {
  static const std::unique_ptr<const Properties> kProperties = build();
  return *kProperties;
}

}  // namespace

std::string_view name_of(Category category) {
  constexpr std::string_view kNames =
      "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
  return kNames.substr(size_t{2} * static_cast<size_t>(category), 2);
}

Category category(char32_t c) {
  return c < kEnd ? static_cast<Category>(properties().category[c]) : Category::kCn;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_numeric(char32_t c) {
  return c < kEnd && properties().numeric[c];
}
bool is_word(char32_t c) {
  return c < kEnd && properties().word[c];
}
bool is_punctuation(char32_t c) {
  return c < kEnd && properties().punctuation[c];
}
bool is_combining_mark(char32_t c) {
  return c < kEnd && properties().combining[c];
}
bool is_nonspacing_mark(char32_t c) {
  return c < kEnd && properties().nonspacing[c];
}
bool is_control(char32_t c) {
  return c < kEnd && properties().control[c];
}
bool is_frozen(char32_t c) {
  return c < kEnd && properties().frozen[c];
}

void append_lower(std::string& text, char32_t c) {
  if (c < 0x80) {
    text.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  if (c == 0x130) {
    text += "i\xcc\x87";
    return;
  }
  const auto value = static_cast<int32_t>(c);
  size_t low = 0, high = tables::kLowerRunsCount / 4;  // first row that starts after value
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (tables::kLowerRuns[middle * 4] <= value)
      low = middle + 1;
    else
      high = middle;
  }
  if (low > 0) {
    const int32_t* run = tables::kLowerRuns + (low - 1) * 4;
    if (value <= run[1] && (value - run[0]) % run[2] == 0)
      return append(text, static_cast<char32_t>(value + run[3]));
  }
  append(text, c);
}

size_t spaces_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Decoded next = decode(text, at);
    if (!is_space(next.code_point)) break;
    at += next.size;
  }
  return at;
}

size_t spaces_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const Decoded last = decode_before(text, end);
    if (!is_space(last.code_point)) break;
    end -= last.size;
  }
  return end;
}

Ranges assigned_after_unicode_14(std::string_view prefix) {
  Ranges result;
  for (const auto& [first, last] :
       ranges_of(tables::kAfterUnicode14, tables::kAfterUnicode14Count)) {
    for (char32_t c = first; c <= last; ++c) {
      if (!name_of(category(c)).starts_with(prefix)) continue;
      if (!result.empty() && result.back().second + 1 == c)
        result.back().second = c;
      else
        result.emplace_back(c, c);
    }
  }
  return result;
}

namespace {

/// Below this every code point is a starter, in NFC, and composes with nothing that precedes it.
constexpr char32_t kFirstMark = 0x300;

int combining_class(char32_t c) {
  return is_frozen(c) ? 0
                      : utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void decompose(char32_t c, bool compatibility, std::vector<utf8proc_int32_t>& points) {
  const auto value = static_cast<utf8proc_int32_t>(c);
  if (c < 0x80 || is_frozen(c)) {
    points.push_back(value);
    return;
  }
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  utf8proc_int32_t parts[32];  // the longest decomposition has 18
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(value, parts, 32, options, &boundary);
  KVCAL_CHECK(count >= 0 && count <= 32);
  points.insert(points.end(), parts, parts + count);
}

void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto mark_class = [](utf8proc_int32_t c) {
    return combining_class(static_cast<char32_t>(c));
  };
  const auto is_mark = [&](utf8proc_int32_t c) { return c >= 0x300 && mark_class(c) != 0; };
  for (auto at = points.begin(); at != points.end();) {
    at = std::find_if(at, points.end(), is_mark);
    const auto end = std::find_if_not(at, points.end(), is_mark);
    std::stable_sort(at, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    at = end;
  }
}

/// Composes the parts between frozen code points, which the library's older tables never compose.
void compose(std::vector<utf8proc_int32_t>& points) {
  const auto frozen = [](utf8proc_int32_t c) { return is_frozen(static_cast<char32_t>(c)); };
  size_t kept = 0;
  for (size_t at = 0; at < points.size();) {
    if (frozen(points[at])) {
      points[kept++] = points[at++];
      continue;
    }
    size_t end = at;
    while (end < points.size() && !frozen(points[end])) ++end;
    const auto count = utf8proc_normalize_utf32(
        points.data() + at, static_cast<utf8proc_ssize_t>(end - at),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    KVCAL_CHECK(count >= 0);
    std::copy_n(points.begin() + static_cast<std::ptrdiff_t>(at), count,
                points.begin() + static_cast<std::ptrdiff_t>(kept));
    kept += static_cast<size_t>(count);
    at = end;
  }
  points.resize(kept);
}

/// Length of the longest prefix that the form leaves alone for certain.
size_t untouched_prefix(std::string_view text, Normalization form) {
  const char32_t limit = form == Normalization::kNfc ? kFirstMark : 0x80;
  size_t at = 0, previous = 0;
  while (at < text.size()) {
    const Decoded next = decode(text, at);
    // The last code point before a mark may compose with it, so it is not safe either.
    if (next.code_point >= limit) return previous;
    previous = at;
    at += next.size;
  }
  return at;
}

}  // namespace

std::string normalize(std::string_view text, Normalization form) {
  const size_t safe = untouched_prefix(text, form);
  std::string result(text.substr(0, safe));
  if (safe == text.size()) return result;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() - safe);
  const bool compatibility = form == Normalization::kNfkc || form == Normalization::kNfkd;
  for (size_t at = safe; at < text.size();) {
    const Decoded next = decode(text, at);
    decompose(next.code_point, compatibility, points);
    at += next.size;
  }
  order_marks(points);
  if (form == Normalization::kNfc || form == Normalization::kNfkc) compose(points);
  result.reserve(text.size() + text.size() / 4);
  for (const utf8proc_int32_t c : points) append(result, static_cast<char32_t>(c));
  return result;
}

size_t grapheme_end(std::string_view text, size_t at) {
  Decoded current = decode(text, at);
  size_t end = at + current.size;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Decoded next = decode(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(current.code_point),
                                         static_cast<utf8proc_int32_t>(next.code_point), &state))
      break;
    current = next;
    end += next.size;
  }
  return end;
}

}  // namespace kvcal::unicode
