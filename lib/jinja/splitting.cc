#include "jinja/splitting.h"

#include <algorithm>

#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::vector<std::string_view> split_at_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = stripped(text, std::nullopt, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      // The rest keeps its inner and trailing whitespace: Python strips only its front here.
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    for (size_t next = 0; next < text.size() && !is_space(next_code_point(text, next));
         end = next) {
    }
    parts.push_back(text.substr(0, end));
    text = stripped(text.substr(end), std::nullopt, true, false);
  }
  return parts;
}

std::vector<std::string_view> split_at_space_from_end(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = stripped(text, std::nullopt, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    for (size_t before = begin; before > 0 && !is_space(previous_code_point(text, before));
         begin = before) {
    }
    parts.push_back(text.substr(begin));
    text = stripped(text.substr(0, begin), std::nullopt, false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(separator);
    if (at == kNone) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_at_from_end(std::string_view text, std::string_view separator,
                                                int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.rfind(separator);
    if (at == kNone) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// "abc" with "-" between and around its code points.
std::string interleaved(std::string_view text, std::string_view with, int64_t count) {
  std::string out;
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    out += with;
    if (at >= text.size()) return out;
    const size_t begin = at;
    next_code_point(text, at);
    out += text.substr(begin, at - begin);
  }
  return out + std::string(text.substr(at));
}

}  // namespace

TextPart part_of(const Call& call, size_t start, size_t end) {
  const std::string_view text = call.self.as_text();
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

std::vector<std::string_view> split_text(Run& run, std::string_view text,
                                         std::optional<std::string_view> separator, int64_t limit,
                                         bool from_end) {
  run.charge_bytes(text.size());
  if (!separator)
    return from_end ? split_at_space_from_end(text, limit) : split_at_space(text, limit);
  if (separator->empty()) fail("empty separator");
  return from_end ? split_at_from_end(text, *separator, limit) : split_at(text, *separator, limit);
}

Value list_of_texts(Run& run, const std::vector<std::string_view>& texts) {
  run.charge(texts.size());
  std::vector<Value> items;
  items.reserve(texts.size());
  for (const std::string_view text : texts) items.push_back(Value::text(text));
  return make_list(run, std::move(items));
}

int64_t count_occurrences(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return count_code_points(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != kNone; at = text.find(wanted, at + wanted.size()))
    ++count;
  return count;
}

std::string replaced(Run& run, std::string_view text, std::string_view old, std::string_view with,
                     int64_t count) {
  run.charge_bytes(text.size());
  const int64_t found = count_occurrences(text, old);
  const int64_t times = count < 0 ? found : std::min(found, count);
  run.check_size(text.size() + static_cast<uint64_t>(times) * with.size());
  if (old.empty()) return interleaved(text, with, times);
  std::string out;
  for (int64_t i = 0; i < times; ++i) {
    const size_t at = text.find(old);
    out += text.substr(0, at);
    out += with;
    text.remove_prefix(at + old.size());
  }
  return out += text;
}

std::string justified(Run& run, std::string_view text, int64_t width, std::string_view fill,
                      char align) {
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t missing = std::max<int64_t>(width, 0) - count_code_points(text);
  if (missing <= 0) return std::string(text);
  run.check_size(text.size() + static_cast<uint64_t>(missing) * fill.size());
  // Python's center puts the odd place left when the width is odd.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                                      : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace kvcal::jinja
