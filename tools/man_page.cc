#include "man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "completion.h"
#include "kvcal_version.h"

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

std::string heading(const std::string& page, const std::string& date) {
  std::string title = page;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".\\\" Made by \"kvcal man\" from the options of the program.\n.TH " + plain(title) +
         " 1 \"" + date + "\" \"kvcal " KVCAL_VERSION "\" \"User Commands\"\n";
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

std::string shown_name(const OptionFacts& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + bold(name);
  if (!option.is_flag()) text += ' ' + italic(option.placeholder());
  return text;
}

/// Whether the help says all that there is to choose from.
bool names_choices(const OptionFacts& option) {
  return std::ranges::all_of(option.choices, [&](const std::string& choice) {
    return option.help.find(choice) != std::string::npos;
  });
}

std::string paragraph(const OptionFacts& option, const std::string& shown) {
  std::string text = sentence(plain(option.help));
  if (!names_choices(option)) text += " One of " + plain(joined(option.choices, ", ")) + '.';
  if (!option.limits.empty()) text += " " + plain(option.limits) + '.';
  if (!option.default_value.empty()) text += " Default: " + plain(option.default_value) + '.';
  if (option.is_repeatable) text += " May be repeated.";
  return ".TP\n" + shown + (option.is_required ? " (required)" : "") + '\n' + filled(text);
}

std::string options_of(const CommandFacts& command) {
  std::string text, group;
  for (const OptionFacts& option : command.options) {
    if (option.group != group) text += ".SS " + plain(option.group) + '\n';
    group = option.group;
    text += paragraph(option, shown_name(option));
  }
  return text;
}

std::string synopsis_of(const CommandFacts& command) {
  std::string text = bold("kvcal " + command.name);
  for (const OptionFacts& argument : command.arguments)
    text += argument.is_required ? ' ' + italic(argument.names.front())
                                 : " [" + italic(argument.names.front()) + ']';
  for (const OptionFacts& option : command.options)
    if (option.is_required) text += ' ' + shown_name(option);
  return filled(text + " [" + italic("option") + "]...");
}

std::string exit_status() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitStatusFact& fact : exit_status_facts())
    text += ".TP\n" + bold(std::to_string(fact.status)) + '\n' + filled(plain(fact.meaning));
  return text;
}

}  // namespace

std::string man_page_of_command(const CommandFacts& command, const std::string& date) {
  const std::string page = "kvcal-" + command.name;
  std::ostringstream out;
  out << heading(page, date) << ".SH NAME\n"
      << plain(page) << " \\- " << plain(command.help) << '\n'
      << ".SH SYNOPSIS\n"
      << synopsis_of(command);
  if (!command.arguments.empty()) out << ".SH ARGUMENTS\n";
  for (const OptionFacts& argument : command.arguments)
    out << paragraph(argument, italic(argument.names.front()));
  out << ".SH OPTIONS\n"
      << options_of(command) << exit_status() << ".SH SEE ALSO\n"
      << ".BR kvcal (1)\n";
  return out.str();
}

std::string man_page_of_program(const CommandFacts& program,
                                const std::vector<CommandFacts>& commands,
                                const std::string& date) {
  std::ostringstream out;
  out << heading("kvcal", date) << ".SH NAME\nkvcal \\- " << plain(program.help) << '\n'
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
  for (const CommandFacts& command : commands)
    out << ".TP\n.BR kvcal\\-" << plain(command.name) << " (1)\n"
        << filled(sentence(plain(command.help)));
  out << ".SH OPTIONS\n" << options_of(program) << exit_status() << ".SH SEE ALSO\n";
  for (size_t i = 0; i < commands.size(); ++i)
    out << ".BR kvcal\\-" << plain(commands[i].name) << " (1)"
        << (i + 1 < commands.size() ? "," : "") << '\n';
  return out.str();
}

}  // namespace kvcal
