#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace kvcal {

// What the process was told when it was started: its words, how much to print, the locale.

/// Remembers the words that the program was started with, for messages.
void remember_command_line(int argc, char** argv);
/// They, as a shell takes them, with --resume.
std::string resuming_command_line();
/// The words as a shell takes them, with --resume where they do not have it.
std::string resuming_command_line(const std::vector<std::string>& words);

/// How much the program says beside what it was asked for.
enum class Verbosity { kQuiet, kNormal, kVerbose };

/// Set once, while the command line is read.
void set_verbosity(Verbosity verbosity);
/// Whether progress, notes and summaries are left out.
bool is_quiet();
/// Whether the user asks for all.
bool is_verbose();
/// The most rows that a table is printed with; a longer one has a summary instead, unless the user
/// asks for all.
size_t most_rows();

/// Whether text is coloured: where a terminal shows it, and NO_COLOR and TERM=dumb do not ask for
/// plain text, or as the user says.
enum class Colours { kAuto, kAlways, kNever };
/// Set once, while the command line is read. Throws Error for another word than auto, always and
/// never.
void set_colours(const std::string& word);
Colours chosen_colours();

/// Whether the terminal shows Unicode: the locale (LC_ALL, LC_CTYPE or LANG) is one of UTF-8.
bool has_unicode(const std::function<const char*(const char*)>& environment = [](const char* name) {
  return static_cast<const char*>(std::getenv(name));
});

}  // namespace kvcal
