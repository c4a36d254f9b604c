#include "terminal/layout.h"

#include <algorithm>

#include "core/text.h"
#include "core/wrapping.h"

namespace kvcal {
namespace {

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

std::string in_rows(std::string_view line, size_t columns) {
  if (columns_of(line) <= columns || is_command(line)) return std::string(line);
  const size_t indent = indent_of(line, columns);
  return join(word_rows(line, columns - indent, columns), '\n' + std::string(indent, ' '));
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
