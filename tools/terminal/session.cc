#include "terminal/session.h"

#include <algorithm>
#include <limits>

#include "core/registry.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr size_t kMostRows = 40;

// Set once, before anything runs.
std::vector<std::string> command_line;
Verbosity chosen = Verbosity::kNormal;
Colours colours = Colours::kAuto;

}  // namespace

void remember_command_line(int argc, char** argv) {
  command_line.assign(argv, argv + argc);
}

std::string resuming_command_line() {
  return resuming_command_line(command_line);
}

std::string resuming_command_line(const std::vector<std::string>& words) {
  const std::string line = join(words, " ", shell_word);
  const bool resumes = std::ranges::find(words, "--resume") != words.end();
  return resumes ? line : line + " --resume";
}

void set_verbosity(Verbosity verbosity) {
  chosen = verbosity;
}

bool is_quiet() {
  return chosen == Verbosity::kQuiet;
}

bool is_verbose() {
  return chosen == Verbosity::kVerbose;
}

size_t most_rows() {
  return is_verbose() ? std::numeric_limits<size_t>::max() : kMostRows;
}

void set_colours(const std::string& word) {
  static const Registry<Colours> kWords{
      "--color",
      {{"auto", Colours::kAuto}, {"always", Colours::kAlways}, {"never", Colours::kNever}}};
  colours = kWords.at(word);
}

Colours chosen_colours() {
  return colours;
}

bool has_unicode(const std::function<const char*(const char*)>& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = environment(name);
    if (!value || !*value) continue;
    const std::string locale = ascii_lower(value);
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

}  // namespace kvcal
