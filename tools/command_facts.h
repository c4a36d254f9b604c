#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvcal {

/// What a value on the command line stands for, so that a shell can offer some.
enum class ValueKind { kNone, kText, kNumber, kFile, kFolder, kPath, kChoice };

/// An option, or an argument that has its place instead of a name.
struct OptionFacts {
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

/// A command as its options describe it: what man pages and completions are made of.
struct CommandFacts {
  std::string name, help;
  std::vector<OptionFacts> options, arguments;
};

/// The program itself, or one of its commands. Hidden options are left out.
CommandFacts facts_of(const CLI::App& command);
/// Of every command that --help lists, in its order.
std::vector<CommandFacts> facts_of_commands(const CLI::App& program);

/// What the program ends with and what that means, in order.
struct ExitStatusFact {
  int status;
  const char* meaning;
};
const std::vector<ExitStatusFact>& exit_status_facts();

}  // namespace kvcal
