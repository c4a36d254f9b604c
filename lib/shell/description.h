#pragma once

#include <string>
#include <vector>

namespace kvcal {

/// Kind of a value on the command line, so that a shell can offer some.
enum class ValueKind { kNone, kText, kNumber, kFile, kFolder, kPath, kChoice };

/// An option, or an argument that has its place instead of a name.
struct OptionDescription {
  std::vector<std::string> names;  ///< "-h", "--help"; an argument's one name has no dashes
  std::string help;
  std::string default_value;  ///< empty: none is shown
  std::string limits;         ///< of a number: "0 to 4096"; empty: any
  std::string group;          ///< a title over several options; empty: the command's own
  ValueKind kind = ValueKind::kText;
  std::vector<std::string> choices;
  bool are_choices_joined = false;  ///< several in one value, with '+' between them
  bool is_required = false;
  bool is_repeatable = false;

  bool is_flag() const { return kind == ValueKind::kNone; }
  /// "FOLDER": what stands for the value where the option is explained; empty for a flag.
  std::string placeholder() const;
};

struct CommandDescription {
  std::string name, help;
  std::vector<OptionDescription> options, arguments;
};

/// An exit status of the program, and what it means.
struct ExitStatusMeaning {
  int status;
  std::string meaning;
};

/// The command line of the program: all that man pages and completion scripts are made of.
struct ProgramDescription {
  std::string version;
  CommandDescription program;  ///< its help and its own options
  std::vector<CommandDescription> commands;
  std::vector<ExitStatusMeaning> exit_statuses;
};

}  // namespace kvcal
