#include "terminal/command_line.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/shell_word.h"

namespace kvcal {
namespace {

// Set once, before anything runs.
std::vector<std::string> words;

}  // namespace

void remember_command_line(int argc, char** argv) {
  words.assign(argv, argv + argc);
}

std::string resuming_command_line() {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  const bool resumes = std::find(words.begin(), words.end(), "--resume") != words.end();
  return resumes ? line : line + " --resume";
}

std::string printable(std::string_view message) {
  std::string text;
  for (const char c : message) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n' || (code >= 0x20 && code != 0x7f)) {
      text += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", code);
      text += escaped;
    }
  }
  return text;
}

}  // namespace kvcal
