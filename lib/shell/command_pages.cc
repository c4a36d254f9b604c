#include "shell/command_pages.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <sstream>

#include "core/error.h"
#include "core/text.h"
#include "core/wrapping.h"

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
  return lines + line + join(word_rows(text, kHelpColumns - indent), '\n' + spaces(indent)) + '\n';
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

constexpr const char* kMoreHelp =
    "kvcal help environment lists variables of the environment and exit statuses.\n";

std::string page_of_command(const CommandDescription& command) {
  return usage_of(command) + "\n" + hung("", command.help, 0) + arguments_of(command) +
         options_of(command) + examples_of(command) + "\n" + kMoreHelp;
}

/// A line longer than this is bad style to those who check pages.
constexpr size_t kManLineLength = 78;

/// Without what roff takes for its own.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else {
      result += c == '-' ? "\\-" : std::string(1, c);
    }
  }
  return result;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

/// Lines of running text; none begins as a request does.
std::string filled(const std::string& text) {
  std::string lines;
  for (const std::string_view row : word_rows(text, kManLineLength)) {
    const bool is_request = row.starts_with('.') || row.starts_with('\'');
    lines += (is_request ? "\\&" : "") + std::string(row) + '\n';
  }
  return lines;
}

std::string man_heading(const std::string& page, const ProgramDescription& program,
                        const std::string& date) {
  return ".\\\" Made by \"kvcal man\" from the options of the program.\n.TH " +
         plain(ascii_upper(page)) + " 1 \"" + date + "\" \"kvcal " + program.version +
         "\" \"User Commands\"\n";
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

std::string shown_name(const OptionDescription& option) {
  std::string text = join(option.names, ", ", bold);
  if (!option.is_flag()) text += ' ' + italic(option.placeholder());
  return text;
}

std::string man_paragraph(const OptionDescription& option, const std::string& shown) {
  std::string text = sentence(plain(option.help));
  if (!names_choices(option)) text += " One of " + plain(join(option.choices, ", ")) + '.';
  if (!option.limits.empty()) text += " " + plain(option.limits) + '.';
  if (!option.default_value.empty()) text += " Default: " + plain(option.default_value) + '.';
  if (option.is_repeatable) text += " May be repeated.";
  return ".TP\n" + shown + (option.is_required ? " (required)" : "") + '\n' + filled(text);
}

std::string man_options(const CommandDescription& command) {
  std::string text, group;
  for (const OptionDescription& option : command.options) {
    if (option.group != group) text += ".SS " + plain(option.group) + '\n';
    group = option.group;
    text += man_paragraph(option, shown_name(option));
  }
  return text;
}

std::string synopsis_of(const CommandDescription& command) {
  std::string text = bold("kvcal " + command.name);
  for (const OptionDescription& argument : command.arguments)
    text += argument.is_required ? ' ' + italic(argument.names.front())
                                 : " [" + italic(argument.names.front()) + ']';
  for (const OptionDescription& option : command.options)
    if (option.is_required) text += ' ' + shown_name(option);
  return filled(text + " [" + italic("option") + "]...");
}

std::string man_examples(const CommandDescription& command) {
  if (command.examples.empty()) return "";
  std::string text = ".SH EXAMPLES\n";
  for (const ExampleDescription& example : command.examples)
    text += (text.ends_with(".RE\n") ? ".PP\n" : "") + filled(plain(example.purpose) + ':') +
            ".PP\n.RS 4\n.nf\n" + plain(example.line) + "\n.fi\n.RE\n";
  return text;
}

std::string man_environment(const CommandDescription& command) {
  std::string text = ".SH ENVIRONMENT\n";
  if (command.environment.empty()) text += filled(kNoVariables);
  for (const VariableDescription& variable : command.environment)
    text += ".TP\n" + bold(variable.names) + '\n' + filled(sentence(plain(variable.meaning)));
  return text;
}

std::string man_exit_status(const ProgramDescription& program) {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitStatusMeaning& one : program.exit_statuses)
    text += ".TP\n" + bold(std::to_string(one.status)) + '\n' + filled(plain(one.meaning));
  return text;
}

std::string man_of_command(const ProgramDescription& program, const CommandDescription& command,
                           const std::string& date) {
  const std::string page = "kvcal-" + command.name;
  std::ostringstream out;
  out << man_heading(page, program, date) << ".SH NAME\n"
      << plain(page) << " \\- " << plain(command.help) << '\n'
      << ".SH SYNOPSIS\n"
      << synopsis_of(command);
  if (!command.arguments.empty()) out << ".SH ARGUMENTS\n";
  for (const OptionDescription& argument : command.arguments)
    out << man_paragraph(argument, italic(argument.names.front()));
  out << ".SH OPTIONS\n"
      << man_options(command) << man_environment(command) << man_exit_status(program)
      << man_examples(command) << ".SH SEE ALSO\n"
      << ".BR kvcal (1)\n";
  return out.str();
}

std::string man_of_program(const ProgramDescription& program, const std::string& date) {
  std::ostringstream out;
  out << man_heading("kvcal", program, date) << ".SH NAME\nkvcal \\- "
      << plain(program.program.help) << '\n'
      << ".SH SYNOPSIS\n"
      << filled(bold("kvcal") + ' ' + italic("command") + " [" + italic("argument") + "]...")
      << ".br\n"
      << filled(bold("kvcal") + ' ' + bold("--version") + " [" + bold("--json") + ']')
      << ".SH DESCRIPTION\n"
      << filled(
             plain("Reads a Hugging Face model folder, finds scales for its KV cache, weights "
                   "and activations in FP8 as a recipe asks, and writes checkpoints that serving "
                   "engines load. Results go to standard output, progress and messages to "
                   "standard error. An output appears complete or not at all."))
      << ".SH COMMANDS\nEach has a page of its own.\n";
  for (const CommandDescription& command : program.commands)
    out << ".TP\n.BR kvcal\\-" << plain(command.name) << " (1)\n"
        << filled(sentence(plain(command.help)));
  out << ".SH OPTIONS\n"
      << man_options(program.program) << man_environment(program.program)
      << man_exit_status(program) << man_examples(program.program) << ".SH SEE ALSO\n";
  out << join(program.commands, ",\n", [](const CommandDescription& command) {
    return ".BR kvcal\\-" + plain(command.name) + " (1)";
  }) << '\n';
  return out.str();
}

}  // namespace

std::string help_page(const ProgramDescription& program, const std::string& command) {
  if (command == kEnvironmentPage)
    return "What kvcal reads of the environment, and how it ends\n" +
           environment_of(program.program) + exit_statuses_of(program);
  if (!command.empty()) return page_of_command(command_named(program, command));
  return start_of_program(program) + options_of(program.program) + examples_of(program.program) +
         "\nkvcal help COMMAND explains a command, kvcal man COMMAND prints its man page.\n" +
         kMoreHelp;
}

std::string short_help(const ProgramDescription& program) {
  return start_of_program(program) +
         "\nkvcal help COMMAND explains a command, kvcal --help all that they share.\n";
}

std::vector<std::string> man_page_names(const ProgramDescription& program) {
  std::vector<std::string> names = {"kvcal"};
  for (const CommandDescription& command : program.commands)
    names.push_back("kvcal-" + command.name);
  return names;
}

std::string man_page(const ProgramDescription& program, const std::string& command,
                     const std::string& date) {
  if (command.empty()) return man_of_program(program, date);
  return man_of_command(program, command_named(program, command), date);
}

std::string date_of_epoch(std::string_view seconds) {
  int64_t count = 0;
  const char* const last = seconds.data() + seconds.size();
  const auto [end, error] = std::from_chars(seconds.data(), last, count);
  constexpr int64_t kLastSecond = 253402300799;  // of the year 9999
  if (error != std::errc() || end != last || count < 0 || count > kLastSecond)
    fail("SOURCE_DATE_EPOCH is '", seconds, "', expected seconds since 1970");
  const auto time = static_cast<std::time_t>(count);
  std::tm day{};
  gmtime_r(&time, &day);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", &day);
  return date;
}

}  // namespace kvcal
