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
  bool is_hidden = false;  ///< on no page
  /// The argument in Python; an empty name: none. Types are those of python/kvcal; an empty default
  /// is None, or that there is none where it is required.
  std::string python_name = {}, python_type = {}, python_default = {};
  bool has_place_in_python = false;  ///< it may be given without its name

  bool is_flag() const { return kind == ValueKind::kNone; }
  /// "FOLDER": what stands for the value where the option is explained; empty for a flag.
  std::string placeholder() const;
};

/// A command line to try. A line may go on behind "\\\n"; the purpose is one line.
struct ExampleDescription {
  std::string purpose, line;
};

/// Variables of the environment, "HF_HOME, HF_HUB_CACHE", and what they are for.
struct VariableDescription {
  std::string names, meaning;
};

/// What a command is in Python: a function, and the type that it returns. An empty name: nothing.
struct PythonFunction {
  std::string name = {}, returns = {}, help = {};
  std::string further = {};  ///< declarations of parameters that python/kvcal takes itself
};

struct CommandDescription {
  std::string name, help;
  std::vector<OptionDescription> options, arguments;
  std::vector<ExampleDescription> examples = {};
  std::vector<VariableDescription> environment = {};
  PythonFunction python = {};
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

/// Titles over options, in the order of pages.
inline constexpr const char* kModelAndData = "Model and data";
inline constexpr const char* kRecipe = "Recipe";
inline constexpr const char* kCacheAndScales = "Cache and scales";
inline constexpr const char* kCells = "Cells";
inline constexpr const char* kEngine = "Engine";
inline constexpr const char* kGeneration = "Generation";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kAccuracy = "Accuracy";
inline constexpr const char* kMachine = "Machine";
inline constexpr const char* kRanks = "Interruptions and several machines";
inline constexpr const char* kPrinting = "Printing";

/// Brings the options of each group together, those with a title of their own last. A command of
/// few options has no other titles. Adds the variables of the environment that change what the
/// command does; one of the name "kvcal" is the program.
void complete_description(CommandDescription& command);

/// What stands for the environment of a command that reads none of it.
constexpr const char* kNoVariables = "No variable changes what it does.";

/// "MODEL_TYPE": an argument's name where it stands for a value.
std::string upper_name(const OptionDescription& argument);
/// Whether the help says all that there is to choose from.
bool names_choices(const OptionDescription& option);
/// The message for a name that no command has, with the nearest name.
std::string unknown_command(const ProgramDescription& program, const std::string& name);
/// The command with this name. Throws Error.
const CommandDescription& command_named(const ProgramDescription& program, const std::string& name);

}  // namespace kvcal
