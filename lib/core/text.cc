#include "core/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/number.h"
#include "core/registry.h"
#include "core/utf8.h"
#include "core/wrapping.h"

namespace kvcal {

std::string fixed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string short_float(double value) {
  return fixed("%.6g", value);
}

std::string percent(double fraction) {
  if (fraction == 0.0) return "0";
  return fixed("%.3g %%", 100.0 * fraction);
}

std::string byte_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000.0;
    ++unit;
  }
  return fixed(unit == 0 ? "%.0f " : "%.1f ", bytes) + kUnits[unit];
}

std::string range_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[begin]);
    if (end > begin + 1) text += "-" + std::to_string(numbers[end - 1]);
    begin = end;
  }
  return text;
}

std::string layer_range_text(const std::vector<int64_t>& layers) {
  return (layers.size() == 1 ? "layer " : "layers ") + range_text(layers);
}

double parse_fraction(std::string_view text) {
  constexpr double kMost = 1e6;  // more is a slip
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  double value = 0.0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value) ||
      value < 0.0 || value > kMost)
    fail("'", text, "' is no fraction; expected a number from 0 to 1000000, such as 0.005 or 0.5%");
  return is_percent ? value / 100.0 : value;
}

double parse_part(std::string_view text) {
  const double part = parse_fraction(text);
  if (part > 1.0)
    fail("'", text, "' is more than the whole; expected at most 1 or 100%",
         text.ends_with('%') ? "" : ", and percents have their sign");
  return part;
}

uint64_t parse_byte_size(const std::string& text) {
  static const Registry<uint64_t> kUnits{"unit",
                                         {{"", 1},
                                          {"B", 1},
                                          {"KB", 1000},
                                          {"MB", 1000000},
                                          {"GB", 1000000000},
                                          {"KiB", uint64_t{1} << 10},
                                          {"MiB", uint64_t{1} << 20},
                                          {"GiB", uint64_t{1} << 30},
                                          {"TiB", uint64_t{1} << 40}}};
  const char* const last = text.data() + text.size();
  uint64_t whole = 0;
  double fraction = 0.0;
  auto [end, error] = std::from_chars(text.data(), last, whole);
  const bool is_number = error == std::errc() && end != text.data();
  const bool has_fraction =
      is_number && last - end > 1 && end[0] == '.' && end[1] >= '0' && end[1] <= '9';
  if (has_fraction) end = std::from_chars(end, last, fraction).ptr;
  if (is_number && last - end > 1 && *end == ' ') ++end;  // as messages write sizes
  const uint64_t* unit = kUnits.find(std::string(end, last));
  if (!is_number || !unit || (has_fraction && *unit == 1))
    fail(shown_name(text), " is no size, expected a number and a unit like 8GiB",
         did_you_mean(end, kUnits.names()));
  const auto more = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(*unit) - 1e-6));
  return checked_add(checked_mul(whole, *unit), more);
}

std::string time_text(double seconds) {
  constexpr long long kMinute = 60, kHour = 3600;
  const long long whole = std::llround(seconds);
  if (whole < 2 * kMinute) return std::to_string(whole) + " s";
  // An estimate of hours is no better than five minutes.
  const long long minutes = (whole + kMinute / 2) / kMinute;
  if (minutes < 2 * kMinute) return std::to_string(minutes) + " min";
  const long long steps = (whole + 5 * kMinute / 2) / (5 * kMinute);
  const long long hours = steps * 5 * kMinute / kHour, rest = steps * 5 % kMinute;
  return std::to_string(hours) + " h" + (rest ? " " + std::to_string(rest) + " min" : "");
}

void TextTable::add(std::vector<std::string> row) {
  std::ranges::transform(row, row.begin(), shown_text);
  rows_.push_back(std::move(row));
}

namespace {

using Cells = std::vector<std::string>;

constexpr size_t kMostColumns = 80, kBetweenColumns = 2;

size_t width_of(const std::vector<std::string_view>& rows) {
  size_t width = 0;
  for (const std::string_view row : rows) width = std::max(width, columns_of(row));
  return width;
}

size_t width_of(const std::vector<size_t>& widths) {
  const size_t gaps = widths.empty() ? 0 : kBetweenColumns * (widths.size() - 1);
  return std::accumulate(widths.begin(), widths.end(), gaps);
}

/// The width of a column whose first num_folded cells are folded at `most`.
size_t column_width(const std::vector<Cells>& rows, size_t column, size_t num_folded, size_t most) {
  size_t width = 0;
  for (size_t row = 0; row < rows.size(); ++row)
    if (column < rows[row].size()) {
      const std::string& cell = rows[row][column];
      width =
          std::max(width, row < num_folded ? width_of(word_rows(cell, most)) : columns_of(cell));
    }
  return width;
}

/// Makes the widest columns narrower, word by word, until they fit into kMostColumns or no word
/// lets them.
void narrow(const std::vector<Cells>& rows, size_t num_folded, std::vector<size_t>& widths) {
  std::vector<bool> is_least(widths.size(), false);
  while (width_of(widths) > kMostColumns) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (!is_least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    if (widest == widths.size()) return;
    const size_t width = column_width(rows, widest, num_folded, widths[widest] - 1);
    is_least[widest] = width >= widths[widest];
    widths[widest] = std::min(width, widths[widest]);
  }
}

/// Widths that keep the table within kMostColumns where words allow it: headings give way first.
std::vector<size_t> fitting_widths(const std::vector<Cells>& rows, size_t num_columns) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < num_columns; ++i) widths.push_back(column_width(rows, i, 0, 0));
  narrow(rows, 1, widths);
  narrow(rows, rows.size(), widths);
  return widths;
}

/// A row, of as many lines as its highest cell has.
std::string row_lines(const Cells& row, const std::vector<size_t>& widths) {
  std::vector<std::vector<std::string_view>> cells;
  size_t height = 1;
  for (size_t i = 0; i < row.size(); ++i) {
    cells.push_back(word_rows(row[i], widths[i]));
    height = std::max(height, cells.back().size());
  }
  std::string text;
  for (size_t line = 0; line < height; ++line) {
    std::string whole;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string_view part = line < cells[i].size() ? cells[i][line] : "";
      whole += (i ? "  " : "") + std::string(widths[i] - columns_of(part), ' ');
      whole += part;
    }
    if (line > 0) whole.erase(whole.find_last_not_of(' ') + 1);
    text += whole + '\n';
  }
  return text;
}

}  // namespace

std::string TextTable::text() const {
  size_t num_columns = 0;
  for (const Cells& row : rows_) num_columns = std::max(num_columns, row.size());
  const std::vector<size_t> widths = fitting_widths(rows_, num_columns);
  std::string text;
  for (const Cells& row : rows_) text += row_lines(row, widths);
  return text;
}

namespace {

/// Whether a terminal would not show the character but act on it.
bool acts(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(const char* form, uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string escape_of(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return escaped(c < 0x20 ? "\\x%02x" : "\\u%04x", static_cast<uint32_t>(c));
}

std::string shown(std::string_view text, bool keeps_lines) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = utf8::well_formed_size(text, at);
    if (size == 0) {
      result += escaped("\\x%02x", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const char32_t c = utf8::decode(text, at).code_point;
    const bool stays = keeps_lines && (c == '\n' || c == '\t');
    if (acts(c) && !stays)
      result += escape_of(c);
    else
      result.append(text, at, size);
    at += size;
  }
  return result;
}

}  // namespace

std::string shown_text(std::string_view text) {
  return shown(text, /*keeps_lines=*/false);
}

std::string shown_lines(std::string_view text) {
  return shown(text, /*keeps_lines=*/true);
}

std::string shown_message(std::string_view text) {
  std::string_view start = text.substr(0, kMostMessageBytes);
  if (start.size() < text.size()) start.remove_suffix(utf8::unfinished_size(start));
  std::string message = shown_lines(start);
  size_t cut = text.size() - start.size();
  if (message.size() > kMostMessageBytes) {
    cut += message.size() - kMostMessageBytes;
    message.resize(kMostMessageBytes);
    message.resize(message.size() - utf8::unfinished_size(message));
  }
  return cut == 0 ? message : message + " ... (" + std::to_string(cut) + " more bytes)";
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace kvcal
