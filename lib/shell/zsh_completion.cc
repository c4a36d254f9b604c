#include <sstream>

#include "core/join.h"
#include "shell/completion.h"

namespace kvcal {
namespace {

/// In single quotes, in a place where _arguments takes brackets and colons for its own.
std::string quoted_help(const std::string& help) {
  return escaped(escaped(help, "\\[]:", "\\"), "'", "'\\'");
}

/// "message:action" of a value.
std::string action_of(const OptionDescription& option) {
  const std::string message =
      option.names.back().substr(option.names.back().find_first_not_of('-'));
  switch (option.kind) {
    case ValueKind::kChoice:
      return option.are_choices_joined
                 ? message + ":_sequence -s + compadd - " + join(option.choices, " ")
                 : message + ":(" + join(option.choices, " ") + ")";
    case ValueKind::kFile:
    case ValueKind::kPath:
      return message + ":_files";
    case ValueKind::kFolder:
      return message + ":_files -/";
    default:
      return message + ": ";
  }
}

std::string option_line(const OptionDescription& option) {
  const std::string value = option.is_flag() ? "" : ":" + action_of(option);
  const std::string help = "[" + quoted_help(option.help) + "]";
  if (option.names.size() > 1)
    return "'(" + join(option.names, " ") + ")'{" + join(option.names, ",") + "}'" + help + value +
           "'";
  return std::string("'") + (option.is_repeatable ? "*" : "") + option.names.front() +
         (option.is_flag() ? "" : "=") + help + value + "'";
}

std::string command_block(const CommandDescription& command) {
  std::ostringstream out;
  out << "        " << command.name << ")\n          _arguments";
  for (const OptionDescription& option : command.options)
    out << " \\\n            " << option_line(option);
  int place = 0;
  for (const OptionDescription& argument : command.arguments)
    out << " \\\n            '" << ++place << (argument.is_required ? ":" : "::")
        << action_of(argument) << "'";
  out << "\n          ;;\n";
  return out.str();
}

}  // namespace

std::string zsh_completion(const ProgramDescription& program) {
  std::ostringstream out;
  out << "#compdef kvcal\n# Completion of kvcal in zsh, made by \"kvcal completion zsh\".\n"
      << "_kvcal() {\n  local curcontext=\"$curcontext\" state\n  local -a commands line\n"
      << "  commands=(\n";
  for (const CommandDescription& command : program.commands)
    out << "    '" << command.name << ":" << quoted_help(command.help) << "'\n";
  out << "  )\n  _arguments -C";
  for (const OptionDescription& option : program.program.options)
    out << " \\\n    " << option_line(option);
  out << " \\\n    '1: :->command' '*:: :->arguments'\n  case $state in\n"
      << "    command) _describe -t commands command commands ;;\n    arguments)\n"
      << "      curcontext=\"${curcontext%:*:*}:kvcal-$words[1]:\"\n      case $words[1] in\n";
  for (const CommandDescription& command : program.commands) out << command_block(command);
  out << "      esac\n      ;;\n  esac\n}\n"
      << "if [[ $funcstack[1] == _kvcal ]]; then _kvcal \"$@\"; else compdef _kvcal kvcal; fi\n";
  return out.str();
}

}  // namespace kvcal
