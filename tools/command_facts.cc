#include "command_facts.h"

#include <sstream>
#include <string_view>

#include "commands.h"
#include "option_values.h"

namespace kvcal {
namespace {

std::vector<std::string> names_of(const CLI::Option& option) {
  if (option.get_positional()) return {option.get_name(true)};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

/// What stands between the first of these brackets and the last.
std::string_view inside(std::string_view text, char open, char close) {
  const size_t begin = text.find(open), end = text.rfind(close);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return text.substr(begin + 1, end - begin - 1);
}

/// CLI11 tells a type and its checks as one text: "INT:INT in [0 - 4096]", "TEXT:{auto,float32}".
void add_type(const std::string& type, OptionFacts& facts) {
  const size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  const std::string check = colon == std::string::npos ? "" : type.substr(colon + 1);
  const bool is_number = name == "INT" || name == "UINT" || name == "FLOAT";
  facts.kind = is_number ? ValueKind::kNumber : ValueKind::kText;
  if (name == "BOOLEAN") {
    facts.kind = ValueKind::kChoice;
    facts.choices = {"true", "false"};
  }
  if (check == "NONNEGATIVE") facts.limits = "0 or more";
  constexpr std::string_view kTo = " - ";
  const std::string_view range = inside(check, '[', ']');
  if (const size_t to = range.find(kTo); to != std::string_view::npos)
    facts.limits =
        std::string(range.substr(0, to)) + " to " + std::string(range.substr(to + kTo.size()));
  if (!check.starts_with('{')) return;
  facts.kind = ValueKind::kChoice;
  std::istringstream choices{std::string(inside(check, '{', '}'))};
  for (std::string choice; std::getline(choices, choice, ',');) facts.choices.push_back(choice);
}

OptionFacts facts_of(const CLI::App& command, const CLI::Option& option, const std::string& group) {
  OptionFacts facts;
  facts.names = names_of(option);
  facts.help = option.get_description();
  facts.default_value = option.get_default_str();
  facts.group = group;
  facts.is_required = option.get_required();
  facts.is_repeatable = option.get_items_expected_max() > 1;
  if (option.get_items_expected_max() == 0) {
    facts.kind = ValueKind::kNone;
    facts.default_value.clear();
    return facts;
  }
  add_type(option.get_type_name(), facts);
  add_value_facts(command.get_name(), facts.names.back(), facts);
  return facts;
}

/// command: whose facts they become; of: it, or one of its groups of options.
void add_options(const CLI::App& command, const CLI::App& of, CommandFacts& facts) {
  const std::string group = of.get_name().empty() ? of.get_group() : "";
  for (const CLI::Option* option : of.get_options()) {
    // CLI11 gives a group a help option of its own, which its command has.
    if (option->get_group().empty() || (&of != &command && option == of.get_help_ptr())) continue;
    (option->get_positional() ? facts.arguments : facts.options)
        .push_back(facts_of(command, *option, group));
  }
}

bool is_visible_command(const CLI::App& command) {
  return !command.get_name().empty() && !command.get_group().empty();
}

}  // namespace

std::string OptionFacts::placeholder() const {
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return "TEXT";
    case ValueKind::kNumber:
      return "NUMBER";
    case ValueKind::kFile:
      return "FILE";
    case ValueKind::kFolder:
      return "FOLDER";
    case ValueKind::kPath:
      return "PATH";
    case ValueKind::kChoice:
      return are_choices_joined ? "NAME[+NAME]..." : "NAME";
  }
  return "";
}

CommandFacts facts_of(const CLI::App& command) {
  CommandFacts facts{.name = command.get_name(),
                     .help = command.get_description(),
                     .options = {},
                     .arguments = {}};
  add_options(command, command, facts);
  for (const CLI::App* group : command.get_subcommands({}))
    if (group->get_name().empty()) add_options(command, *group, facts);
  return facts;
}

std::vector<CommandFacts> facts_of_commands(const CLI::App& program) {
  std::vector<CommandFacts> facts;
  for (const CLI::App* command : program.get_subcommands({}))
    if (is_visible_command(*command)) facts.push_back(facts_of(*command));
  return facts;
}

const std::vector<ExitStatusFact>& exit_status_facts() {
  static const std::vector<ExitStatusFact> kFacts = {
      {static_cast<int>(ExitStatus::kDone), "The work is done."},
      {static_cast<int>(ExitStatus::kBadInput),
       "An input or the machine does not allow it; the message says what was found where."},
      {static_cast<int>(ExitStatus::kUsage), "The command line is wrong."},
      {static_cast<int>(ExitStatus::kGateMissed),
       "The work is done, and a limit that an option set is exceeded."},
      {static_cast<int>(ExitStatus::kInterrupted), "A signal ended it."}};
  return kFacts;
}

}  // namespace kvcal
