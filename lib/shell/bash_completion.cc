#include <sstream>

#include "core/join.h"
#include "shell/completion.h"

namespace kvcal {
namespace {

/// The words a shell may offer for a value: a kind the script's foot knows, and choices.
std::string offer_of(const OptionDescription& option) {
  switch (option.kind) {
    case ValueKind::kChoice:
      return std::string(option.are_choices_joined ? "kind=joined" : "kind=words") + " words='" +
             join(option.choices, " ") + "'";
    case ValueKind::kFile:
    case ValueKind::kPath:
      return "kind=files";
    case ValueKind::kFolder:
      return "kind=folders";
    default:
      return "kind=none";
  }
}

std::string option_words(const CommandDescription& command) {
  return join(command.options, " ",
              [](const OptionDescription& option) { return join(option.names, " "); });
}

std::string command_block(const CommandDescription& command) {
  std::ostringstream out;
  out << "    " << command.name << ")\n      options='" << option_words(command) << "'\n";
  if (!command.arguments.empty()) out << "      " << offer_of(command.arguments.front()) << '\n';
  out << "      case $previous in\n";
  for (const OptionDescription& option : command.options)
    if (!option.is_flag())
      out << "        " << join(option.names, "|") << ") " << offer_of(option)
          << " is_value=1 ;;\n";
  out << "      esac\n      ;;\n";
  return out.str();
}

/// COMP_WORDBREAKS may hold '=', which then is a word of its own: "--task", "=", "kl".
constexpr const char* kHead = R"(_kvcal() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local options= kind=none words= is_value= front=
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]] && ((COMP_CWORD > 1)); then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $current == --*=* ]]; then
    front=${current%%=*}=
    previous=${current%%=*}
    current=${current#*=}
  fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
)";

constexpr const char* kFoot = R"(  esac
  if [[ -z $is_value && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    return
  fi
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -P "$front" -W "$words" -- "$current") ;;
    joined)
      front+=${current%"${current##*+}"}
      mapfile -t COMPREPLY < <(compgen -P "$front" -W "$words" -- "${current##*+}")
      ;;
    files)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -P "$front" -f -- "$current")
      ;;
    folders)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -P "$front" -d -- "$current")
      ;;
  esac
}
complete -F _kvcal kvcal
)";

}  // namespace

std::string bash_completion(const ProgramDescription& program) {
  std::ostringstream out;
  out << "# Completion of kvcal in bash, made by \"kvcal completion bash\".\n"
      << kHead << "    mapfile -t COMPREPLY < <(compgen -W '"
      << join(program.commands, " ", &CommandDescription::name) << ' '
      << option_words(program.program) << "' -- \"$current\")\n    return\n  fi\n"
      << "  case ${COMP_WORDS[1]} in\n";
  for (const CommandDescription& command : program.commands) out << command_block(command);
  out << kFoot;
  return out.str();
}

}  // namespace kvcal
