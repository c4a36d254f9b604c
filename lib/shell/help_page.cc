#include "shell/help_page.h"

#include <algorithm>
#include <sstream>

#include "core/join.h"

namespace kvcal {
namespace {

/// Column of the texts beside options.
constexpr size_t kTextColumn = 30;

std::string spaces(size_t count) {
  return std::string(count, ' ');
}

/// Lines of at most kHelpColumns: `first`, which may have text of its own, and words from column
/// `indent` on. A first that comes nearer to the column than `gap` stands on a line of its own.
std::string hung(const std::string& first, const std::string& text, size_t indent, size_t gap = 2) {
  std::string lines, line = first;
  if (line.size() + gap > indent && !first.empty()) {
    lines = line + '\n';
    line.clear();
  }
  line += spaces(indent - line.size());
  bool has_word = false;
  std::istringstream words(text);
  for (std::string word; words >> word; has_word = true) {
    if (has_word && line.size() + 1 + word.size() > kHelpColumns) {
      lines += line + '\n';
      line = spaces(indent);
      has_word = false;
    }
    line += (has_word ? " " : "") + word;
  }
  return lines + line + '\n';
}

/// "MODEL", "[MODEL_TYPE]..."
std::string argument_text(const OptionDescription& argument) {
  const std::string name = upper_name(argument);
  return (argument.is_required ? name : "[" + name + "]") + (argument.is_repeatable ? "..." : "");
}

/// "-o, --output FOLDER"; without a short name in the column of the long ones.
std::string option_text(const OptionDescription& option) {
  const bool is_short = option.names.front().size() == 2;
  return (is_short ? "  " : "      ") + join(option.names, ", ") +
         (option.is_flag() ? "" : " " + option.placeholder());
}

/// The help with what else is known: "... [one of a, b; 0 to 9; default: 3]".
std::string explained(const OptionDescription& option) {
  std::vector<std::string> more;
  if (option.is_required) more.emplace_back("required");
  if (!names_choices(option)) more.push_back("one of " + join(option.choices, ", "));
  if (!option.limits.empty()) more.push_back(option.limits);
  if (!option.default_value.empty()) more.push_back("default: " + option.default_value);
  const bool is_told = option.help.find("repeat") != std::string::npos;
  if (option.is_repeatable && !is_told && option.names.front().starts_with('-'))
    more.emplace_back("may be repeated");
  return option.help + (more.empty() ? "" : " [" + join(more, "; ") + "]");
}

std::string arguments_of(const CommandDescription& command) {
  if (command.arguments.empty()) return "";
  std::string text = "\nArguments:\n";
  for (const OptionDescription& argument : command.arguments)
    text += hung("  " + upper_name(argument), explained(argument), kTextColumn);
  return text;
}

std::string options_of(const CommandDescription& command) {
  std::string text;
  const OptionDescription* before = nullptr;
  for (const OptionDescription& option : command.options) {
    if (!before || before->group != option.group)
      text += "\n" + (option.group.empty() ? "Options" : option.group) + ":\n";
    text += hung(option_text(option), explained(option), kTextColumn);
    before = &option;
  }
  return text;
}

std::string examples_of(const CommandDescription& command) {
  std::string text = "\nExamples:\n";
  for (const ExampleDescription& example : command.examples)
    text += "  # " + example.purpose + "\n  " + example.line + "\n";
  return text;
}

std::string environment_of(const CommandDescription& command) {
  std::string text = "\nEnvironment:\n";
  if (command.environment.empty()) text += hung("", kNoVariables, 2);
  for (const VariableDescription& variable : command.environment)
    text += hung("  " + variable.names, variable.meaning, kTextColumn);
  return text;
}

std::string exit_statuses_of(const ProgramDescription& program) {
  std::string text = "\nExit status:\n";
  for (const ExitStatusMeaning& one : program.exit_statuses)
    text += hung("  " + std::to_string(one.status), one.meaning, 7);
  return text;
}

std::string usage_of(const CommandDescription& command) {
  std::string text = join(command.arguments, " ", argument_text);
  for (const OptionDescription& option : command.options)
    if (option.is_required)
      text += (text.empty() ? "" : " ") + option.names.back() + " " + option.placeholder();
  return hung("Usage: kvcal " + command.name, text + " [OPTION]...",
              std::string("Usage: kvcal ").size() + command.name.size() + 1, 1);
}

std::string commands_of(const ProgramDescription& program) {
  size_t widest = 0;
  for (const CommandDescription& command : program.commands)
    widest = std::max(widest, command.name.size());
  std::string text = "\nCommands:\n";
  for (const CommandDescription& command : program.commands)
    text += hung("  " + command.name, command.help, widest + 4);
  return text;
}

std::string start_of_program(const ProgramDescription& program) {
  return "Usage: kvcal COMMAND [ARGUMENT]... [OPTION]...\n\n" + hung("", program.program.help, 0) +
         commands_of(program);
}

std::string page_of_command(const ProgramDescription& program, const CommandDescription& command) {
  return usage_of(command) + "\n" + hung("", command.help, 0) + arguments_of(command) +
         options_of(command) + examples_of(command) + environment_of(command) +
         exit_statuses_of(program);
}

}  // namespace

std::string help_page(const ProgramDescription& program, const std::string& command) {
  if (!command.empty()) return page_of_command(program, command_named(program, command, "help"));
  return start_of_program(program) + options_of(program.program) + examples_of(program.program) +
         environment_of(program.program) + exit_statuses_of(program) +
         "\nkvcal help COMMAND explains a command, kvcal man COMMAND prints its man page.\n";
}

std::string short_help(const ProgramDescription& program) {
  return start_of_program(program) +
         "\nkvcal help COMMAND explains a command, kvcal --help all that they share.\n";
}

}  // namespace kvcal
