#include "terminal/layout.h"

#include <algorithm>

namespace kvcal {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

/// Two for characters from U+1100 on, which may be wide, but for the blocks of drawings and
/// punctuation (U+2000 to U+2BFF), which are not.
size_t columns_at(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (!begins_character(text[at])) return 0;
  if (first < 0xe1 ||
      (first == 0xe2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xb0))
    return 1;
  return 2;
}

bool is_command(std::string_view line) {
  const size_t begin = line.find_first_not_of(' ');
  return (begin != line.npos && line.substr(begin).starts_with("$ ")) ||
         line.find(": loaded: ") != line.npos;
}

/// Blanks in front of the rows that follow the first.
size_t indent_of(std::string_view line, size_t columns) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", begin);
  const size_t second = gap == line.npos ? line.npos : line.find_first_not_of(' ', gap);
  const size_t below = second == line.npos ? begin + 2 : columns_of(line.substr(0, second));
  return below <= columns / 2 ? below : std::min(begin + 2, columns / 4);
}

/// The end of what fits into `columns` from begin on, at a space where there is one.
size_t row_end(std::string_view line, size_t begin, size_t columns) {
  size_t end = begin, used = 0, space = line.npos;
  const size_t text = std::min(line.find_first_not_of(' ', begin), line.size());
  for (; end < line.size(); ++end) {
    if (line[end] == ' ' && end > text) space = end;
    used += columns_at(line, end);
    if (used > columns) break;
  }
  if (end == line.size()) return end;
  return space != line.npos ? space : std::min(line.find(' ', std::max(end, text)), line.size());
}

struct Colour {
  std::string_view words, code;
};
constexpr std::string_view kRed = "\x1b[31m", kYellow = "\x1b[33m", kGreen = "\x1b[32m",
                           kPlain = "\x1b[0m";
/// First words of lines.
constexpr Colour kStarts[] = {{"error:", kRed},        {"error,", kRed},
                              {"gate missed:", kRed},  {"scales would be lost", kRed},
                              {"warning:", kYellow},   {"warning,", kYellow},
                              {"not known:", kYellow}, {"OK:", kGreen}};
/// Words of lines that begin with kVerdicts.
constexpr Colour kJudgements[] = {
    {"do not serve", kRed}, {"noticeable", kYellow}, {"fine", kGreen}};
constexpr std::string_view kVerdicts[] = {"verdict", "advice"};

std::string painted(std::string_view line, size_t at, const Colour& colour) {
  return std::string(line.substr(0, at)) + std::string(colour.code) + std::string(colour.words) +
         std::string(kPlain) + std::string(line.substr(at + colour.words.size()));
}

}  // namespace

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size(); ++at) columns += columns_at(text, at);
  return columns;
}

std::string in_rows(std::string_view line, size_t columns) {
  if (columns_of(line) <= columns || is_command(line)) return std::string(line);
  const size_t indent = indent_of(line, columns);
  std::string rows;
  for (size_t begin = 0; begin < line.size();) {
    const size_t room = begin == 0 ? columns : columns - indent;
    const size_t end = row_end(line, begin, room);
    if (begin > 0) rows += '\n' + std::string(indent, ' ');
    const std::string_view row = line.substr(begin, end - begin);
    rows += row.substr(0, row.find_last_not_of(' ') + 1);
    begin = std::min(line.find_first_not_of(' ', end), line.size());
  }
  return rows;
}

std::string coloured(std::string_view line) {
  for (const Colour& start : kStarts)
    if (line.starts_with(start.words)) return painted(line, 0, start);
  const bool is_verdict = std::ranges::any_of(
      kVerdicts, [&](std::string_view label) { return line.starts_with(label); });
  if (!is_verdict) return std::string(line);
  for (const Colour& judgement : kJudgements)
    if (const size_t at = line.find(judgement.words); at != line.npos)
      return painted(line, at, judgement);
  return std::string(line);
}

}  // namespace kvcal
