#include <sstream>

#include "core/join.h"
#include "shell/completion.h"

namespace kvcal {
namespace {

std::string quoted(const std::string& text) {
  return "'" + escaped(text, "\\'", "\\") + "'";
}

/// The flags of `complete` that say what may stand for a value.
std::string offer_of(const OptionDescription& option) {
  const std::string words = join(option.choices, " ");
  switch (option.kind) {
    case ValueKind::kChoice:
      return "-a " + quoted(option.are_choices_joined ? "(__kvcal_joined " + words + ")" : words);
    case ValueKind::kFile:
    case ValueKind::kPath:
      return "-F";
    case ValueKind::kFolder:
      return "-a '(__fish_complete_directories)'";
    default:
      return "";
  }
}

std::string option_line(const std::string& condition, const OptionDescription& option) {
  std::string line = "complete -c kvcal -n " + quoted(condition);
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.is_flag()) {
    const std::string offer = offer_of(option);
    line += (offer == "-F" ? " -r " : " -x ") + offer;  // -x: no files among what is offered
  }
  return line + (line.back() == ' ' ? "-d " : " -d ") + quoted(option.help) + "\n";
}

}  // namespace

std::string fish_completion(const ProgramDescription& program) {
  std::ostringstream out;
  out << "# Completion of kvcal in fish, made by \"kvcal completion fish\".\n"
      << "function __kvcal_runs --description 'Whether the command line is one of this command'\n"
      << "    set -l words (commandline -opc)\n"
      << "    test (count $words) -ge 2; and test \"$words[2]\" = $argv[1]\nend\n"
      << "function __kvcal_joined --description 'Names that are joined by +'\n"
      << "    set -l front (commandline -ct | string replace -r '^--[^=]*=' '' |"
         " string replace -r '[^+]*$' '')\n"
      << "    printf '%s\\n' \"$front\"$argv\nend\n"
      << "complete -c kvcal -f\n";
  for (const OptionDescription& option : program.program.options)
    out << option_line("__fish_is_first_token", option);
  for (const CommandDescription& command : program.commands)
    out << "complete -c kvcal -n __fish_is_first_token -a " << command.name << " -d "
        << quoted(command.help) << '\n';
  for (const CommandDescription& command : program.commands) {
    const std::string condition = "__kvcal_runs " + command.name;
    for (const OptionDescription& option : command.options) out << option_line(condition, option);
    if (command.arguments.empty()) continue;
    const std::string offer = offer_of(command.arguments.front());
    if (!offer.empty()) out << "complete -c kvcal -n " << quoted(condition) << ' ' << offer << '\n';
  }
  return out.str();
}

}  // namespace kvcal
