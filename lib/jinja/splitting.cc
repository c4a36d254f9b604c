#include "jinja/splitting.h"

#include <algorithm>

#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

Values split_at_space(Run& run, std::string_view text, int64_t limit) {
  Values parts(run);
  text = stripped(text, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      // The rest keeps its inner and trailing whitespace: Python strips only its front here.
      parts.push_back(Value::text(text));
      break;
    }
    size_t end = 0;
    for (size_t next = 0; next < text.size() && !is_space(next_code_point(text, next));
         end = next) {
    }
    parts.push_back(Value::text(text.substr(0, end)));
    text = stripped(text.substr(end), true, false);
  }
  return parts;
}

Values split_at_space_from_end(Run& run, std::string_view text, int64_t limit) {
  Values parts(run);
  text = stripped(text, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Value::text(text));
      break;
    }
    size_t begin = text.size();
    for (size_t before = begin; before > 0 && !is_space(previous_code_point(text, before));
         begin = before) {
    }
    parts.push_back(Value::text(text.substr(begin)));
    text = stripped(text.substr(0, begin), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Values split_at(Run& run, std::string_view text, std::string_view separator, int64_t limit) {
  Values parts(run);
  Finder finder(run, separator);
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = finder.find(text);
    if (at == kNone) break;
    parts.push_back(Value::text(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(Value::text(text));
  return parts;
}

Values split_at_from_end(Run& run, std::string_view text, std::string_view separator,
                         int64_t limit) {
  Values parts(run);
  Finder finder(run, separator, /*from_end=*/true);
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = finder.find(text);
    if (at == kNone) break;
    parts.push_back(Value::text(text.substr(at + separator.size())));
    text = text.substr(0, at);
  }
  parts.push_back(Value::text(text));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// "abc" with "-" between and around its code points.
Text interleaved(Run& run, std::string_view text, std::string_view with, int64_t count) {
  Text out = run.text();
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    out += with;
    if (at >= text.size()) return out;
    const size_t begin = at;
    next_code_point(text, at);
    out += text.substr(begin, at - begin);
  }
  out += text.substr(at);
  return out;
}

}  // namespace

TextPart part_of(const Call& call, size_t start, size_t end) {
  const std::string_view text = call.self_text();
  if (call[start].is_none() && call[end].is_none()) return {text};
  const int64_t length = count_code_points(text);
  const auto bound = [&](size_t i, int64_t fallback) {
    const int64_t at = call[i].is_none() ? fallback : call.integer(i);
    return std::max<int64_t>(at < 0 ? at + length : at, 0);
  };
  const int64_t first = bound(start, 0), last = std::min(bound(end, length), length);
  if (first > last) return {{}, first, false};
  const size_t begin = byte_offset(text, first);
  return {text.substr(begin, byte_offset(text.substr(begin), last - first)), first};
}

Values split_text(Run& run, std::string_view text, std::optional<std::string_view> separator,
                  int64_t limit, bool from_end) {
  if (!separator)
    return from_end ? split_at_space_from_end(run, text, limit) : split_at_space(run, text, limit);
  if (separator->empty()) fail("empty separator");
  return from_end ? split_at_from_end(run, text, *separator, limit)
                  : split_at(run, text, *separator, limit);
}

int64_t count_occurrences(Run& run, std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return count_code_points(text) + 1;
  Finder finder(run, wanted);
  int64_t count = 0;
  for (size_t at = finder.find(text); at != kNone; at = finder.find(text)) {
    text.remove_prefix(at + wanted.size());
    ++count;
  }
  return count;
}

Text replaced(Run& run, std::string_view text, std::string_view old, std::string_view with,
              int64_t count) {
  const int64_t found = count_occurrences(run, text, old);
  const int64_t times = count < 0 ? found : std::min(found, count);
  run.check_size(text.size() + static_cast<uint64_t>(times) * with.size());
  if (old.empty()) return interleaved(run, text, with, times);
  Finder finder(run, old);
  Text out = run.text();
  for (int64_t i = 0; i < times; ++i) {
    const size_t at = finder.find(text);
    out += text.substr(0, at);
    out += with;
    text.remove_prefix(at + old.size());
  }
  out += text;
  return out;
}

Text justified(Run& run, std::string_view text, int64_t width, std::string_view fill, char align) {
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t missing = std::max<int64_t>(width, 0) - count_code_points(text);
  if (missing <= 0) return run.text(text);
  const auto places = static_cast<uint64_t>(missing);
  run.check_size(places);  // so that no product wraps around
  run.check_size(text.size() + places * fill.size());
  // Python's center puts the odd place left when the width is odd.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                                      : missing / 2 + (missing & width & 1);
  Text out = run.text();
  out.reserve(text.size() + places * fill.size());
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace kvcal::jinja
