#include <sstream>

#include "core/registry.h"
#include "core/text.h"
#include "shell/command_pages.h"

namespace kvcal {
namespace {

/// text with `escape` before every character of `special`.
std::string escaped(const std::string& text, const std::string& special,
                    const std::string& escape) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += escape;
    result += c;
  }
  return result;
}

/// The words a shell may offer for a value: a kind the script's foot knows, and choices.
std::string bash_offer(const OptionDescription& option) {
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

std::string bash_block(const CommandDescription& command) {
  std::ostringstream out;
  out << "    " << command.name << ")\n      options='" << option_words(command) << "'\n";
  if (!command.arguments.empty()) out << "      " << bash_offer(command.arguments.front()) << '\n';
  out << "      case $previous in\n";
  for (const OptionDescription& option : command.options)
    if (!option.is_flag())
      out << "        " << join(option.names, "|") << ") " << bash_offer(option)
          << " is_value=1 ;;\n";
  out << "      esac\n      ;;\n";
  return out.str();
}

/// COMP_WORDBREAKS may hold '=', which then is a word of its own: "--task", "=", "kl".
constexpr const char* kBashHead = R"(_kvcal() {
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

constexpr const char* kBashFoot = R"(  esac
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

std::string bash_completion(const ProgramDescription& program) {
  std::ostringstream out;
  out << "# Completion of kvcal in bash, made by \"kvcal completion bash\".\n"
      << kBashHead << "    mapfile -t COMPREPLY < <(compgen -W '"
      << join(program.commands, " ", &CommandDescription::name) << ' '
      << option_words(program.program) << "' -- \"$current\")\n    return\n  fi\n"
      << "  case ${COMP_WORDS[1]} in\n";
  for (const CommandDescription& command : program.commands) out << bash_block(command);
  out << kBashFoot;
  return out.str();
}

/// In single quotes, in a place where _arguments takes brackets and colons for its own.
std::string zsh_help(const std::string& help) {
  return escaped(escaped(help, "\\[]:", "\\"), "'", "'\\'");
}

/// "message:action" of a value.
std::string zsh_action(const OptionDescription& option) {
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

std::string zsh_option(const OptionDescription& option) {
  const std::string value = option.is_flag() ? "" : ":" + zsh_action(option);
  const std::string help = "[" + zsh_help(option.help) + "]";
  if (option.names.size() > 1)
    return "'(" + join(option.names, " ") + ")'{" + join(option.names, ",") + "}'" + help + value +
           "'";
  return std::string("'") + (option.is_repeatable ? "*" : "") + option.names.front() +
         (option.is_flag() ? "" : "=") + help + value + "'";
}

std::string zsh_block(const CommandDescription& command) {
  std::ostringstream out;
  out << "        " << command.name << ")\n          _arguments";
  for (const OptionDescription& option : command.options)
    out << " \\\n            " << zsh_option(option);
  int place = 0;
  for (const OptionDescription& argument : command.arguments)
    out << " \\\n            '" << ++place << (argument.is_required ? ":" : "::")
        << zsh_action(argument) << "'";
  out << "\n          ;;\n";
  return out.str();
}

std::string zsh_completion(const ProgramDescription& program) {
  std::ostringstream out;
  out << "#compdef kvcal\n# Completion of kvcal in zsh, made by \"kvcal completion zsh\".\n"
      << "_kvcal() {\n  local curcontext=\"$curcontext\" state\n  local -a commands line\n"
      << "  commands=(\n";
  for (const CommandDescription& command : program.commands)
    out << "    '" << command.name << ":" << zsh_help(command.help) << "'\n";
  out << "  )\n  _arguments -C";
  for (const OptionDescription& option : program.program.options)
    out << " \\\n    " << zsh_option(option);
  out << " \\\n    '1: :->command' '*:: :->arguments'\n  case $state in\n"
      << "    command) _describe -t commands command commands ;;\n    arguments)\n"
      << "      curcontext=\"${curcontext%:*:*}:kvcal-$words[1]:\"\n      case $words[1] in\n";
  for (const CommandDescription& command : program.commands) out << zsh_block(command);
  out << "      esac\n      ;;\n  esac\n}\n"
      << "if [[ $funcstack[1] == _kvcal ]]; then _kvcal \"$@\"; else compdef _kvcal kvcal; fi\n";
  return out.str();
}

std::string fish_quoted(const std::string& text) {
  return "'" + escaped(text, "\\'", "\\") + "'";
}

/// The flags of `complete` that say what may stand for a value.
std::string fish_offer(const OptionDescription& option) {
  const std::string words = join(option.choices, " ");
  switch (option.kind) {
    case ValueKind::kChoice:
      return "-a " +
             fish_quoted(option.are_choices_joined ? "(__kvcal_joined " + words + ")" : words);
    case ValueKind::kFile:
    case ValueKind::kPath:
      return "-F";
    case ValueKind::kFolder:
      return "-a '(__fish_complete_directories)'";
    default:
      return "";
  }
}

std::string fish_option(const std::string& condition, const OptionDescription& option) {
  std::string line = "complete -c kvcal -n " + fish_quoted(condition);
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.is_flag()) {
    const std::string offer = fish_offer(option);
    line += (offer == "-F" ? " -r " : " -x ") + offer;  // -x: no files among what is offered
  }
  return line + (line.back() == ' ' ? "-d " : " -d ") + fish_quoted(option.help) + "\n";
}

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
    out << fish_option("__fish_is_first_token", option);
  for (const CommandDescription& command : program.commands)
    out << "complete -c kvcal -n __fish_is_first_token -a " << command.name << " -d "
        << fish_quoted(command.help) << '\n';
  for (const CommandDescription& command : program.commands) {
    const std::string condition = "__kvcal_runs " + command.name;
    for (const OptionDescription& option : command.options) out << fish_option(condition, option);
    if (command.arguments.empty()) continue;
    const std::string offer = fish_offer(command.arguments.front());
    if (!offer.empty())
      out << "complete -c kvcal -n " << fish_quoted(condition) << ' ' << offer << '\n';
  }
  return out.str();
}

using MakeCompletion = std::string (*)(const ProgramDescription& program);
const Registry<MakeCompletion> kShells{
    "shell", {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};

}  // namespace

std::vector<std::string> completion_shells() {
  return kShells.names();
}

std::string completion_script(const std::string& shell, const ProgramDescription& program) {
  return kShells.at(shell)(program);
}

}  // namespace kvcal
