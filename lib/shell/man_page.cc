#include "shell/man_page.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <sstream>

#include "core/error.h"
#include "core/join.h"

namespace kvcal {
namespace {

/// A line longer than this is bad style to those who check pages.
constexpr size_t kLineLength = 78;

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
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kLineLength) {
      lines += line + '\n';
      line.clear();
    }
    if (line.empty() && (word.front() == '.' || word.front() == '\'')) word = "\\&" + word;
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + line + '\n';
}

std::string heading(const std::string& page, const ProgramDescription& program,
                    const std::string& date) {
  std::string title = page;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".\\\" Made by \"kvcal man\" from the options of the program.\n.TH " + plain(title) +
         " 1 \"" + date + "\" \"kvcal " + program.version + "\" \"User Commands\"\n";
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

std::string paragraph(const OptionDescription& option, const std::string& shown) {
  std::string text = sentence(plain(option.help));
  if (!names_choices(option)) text += " One of " + plain(join(option.choices, ", ")) + '.';
  if (!option.limits.empty()) text += " " + plain(option.limits) + '.';
  if (!option.default_value.empty()) text += " Default: " + plain(option.default_value) + '.';
  if (option.is_repeatable) text += " May be repeated.";
  return ".TP\n" + shown + (option.is_required ? " (required)" : "") + '\n' + filled(text);
}

std::string options_of(const CommandDescription& command) {
  std::string text, group;
  for (const OptionDescription& option : command.options) {
    if (option.group != group) text += ".SS " + plain(option.group) + '\n';
    group = option.group;
    text += paragraph(option, shown_name(option));
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

std::string examples_of(const CommandDescription& command) {
  if (command.examples.empty()) return "";
  std::string text = ".SH EXAMPLES\n";
  for (const ExampleDescription& example : command.examples)
    text += (text.ends_with(".RE\n") ? ".PP\n" : "") + filled(plain(example.purpose) + ':') +
            ".PP\n.RS 4\n.nf\n" + plain(example.line) + "\n.fi\n.RE\n";
  return text;
}

std::string environment_of(const CommandDescription& command) {
  std::string text = ".SH ENVIRONMENT\n";
  if (command.environment.empty()) text += filled(kNoVariables);
  for (const VariableDescription& variable : command.environment)
    text += ".TP\n" + bold(variable.names) + '\n' + filled(sentence(plain(variable.meaning)));
  return text;
}

std::string exit_status(const ProgramDescription& program) {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitStatusMeaning& one : program.exit_statuses)
    text += ".TP\n" + bold(std::to_string(one.status)) + '\n' + filled(plain(one.meaning));
  return text;
}

std::string page_of_command(const ProgramDescription& program, const CommandDescription& command,
                            const std::string& date) {
  const std::string page = "kvcal-" + command.name;
  std::ostringstream out;
  out << heading(page, program, date) << ".SH NAME\n"
      << plain(page) << " \\- " << plain(command.help) << '\n'
      << ".SH SYNOPSIS\n"
      << synopsis_of(command);
  if (!command.arguments.empty()) out << ".SH ARGUMENTS\n";
  for (const OptionDescription& argument : command.arguments)
    out << paragraph(argument, italic(argument.names.front()));
  out << ".SH OPTIONS\n"
      << options_of(command) << environment_of(command) << exit_status(program)
      << examples_of(command) << ".SH SEE ALSO\n"
      << ".BR kvcal (1)\n";
  return out.str();
}

std::string page_of_program(const ProgramDescription& program, const std::string& date) {
  std::ostringstream out;
  out << heading("kvcal", program, date) << ".SH NAME\nkvcal \\- " << plain(program.program.help)
      << '\n'
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
      << options_of(program.program) << environment_of(program.program) << exit_status(program)
      << examples_of(program.program) << ".SH SEE ALSO\n";
  out << join(program.commands, ",\n", [](const CommandDescription& command) {
    return ".BR kvcal\\-" + plain(command.name) + " (1)";
  }) << '\n';
  return out.str();
}

}  // namespace

std::vector<std::string> man_page_names(const ProgramDescription& program) {
  std::vector<std::string> names = {"kvcal"};
  for (const CommandDescription& command : program.commands)
    names.push_back("kvcal-" + command.name);
  return names;
}

std::string man_page(const ProgramDescription& program, const std::string& command,
                     const std::string& date) {
  if (command.empty()) return page_of_program(program, date);
  return page_of_command(program, command_named(program, command, "man"), date);
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
