#include "unicode/unicode_normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "unicode/unicode.h"

namespace kvcal::unicode {
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
size_t untouched_prefix(std::string_view text, Form form) {
  const char32_t limit = form == Form::kNfc ? kFirstMark : 0x80;
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

std::string normalize(std::string_view text, Form form) {
  const size_t safe = untouched_prefix(text, form);
  std::string result(text.substr(0, safe));
  if (safe == text.size()) return result;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() - safe);
  const bool compatibility = form == Form::kNfkc || form == Form::kNfkd;
  for (size_t at = safe; at < text.size();) {
    const Decoded next = decode(text, at);
    decompose(next.code_point, compatibility, points);
    at += next.size;
  }
  order_marks(points);
  if (form == Form::kNfc || form == Form::kNfkc) compose(points);
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
