#include "command_description.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "commands.h"
#include "engines/engine_rules.h"
#include "export/writer.h"
#include "kernels/backends.h"
#include "kvcal_version.h"
#include "shell/command_guide.h"
#include "shell/completion.h"
#include "shell/option_groups.h"

namespace kvcal {
namespace {

/// command: "" for every command that has the option.
struct ValueRow {
  std::string_view command, option;
  ValueKind kind;
  std::vector<std::string> choices = {};
  bool are_choices_joined = false;
  bool is_written = false;  ///< names what the command writes
};

std::vector<std::string> with_first(const char* first, std::vector<std::string> names) {
  names.insert(names.begin(), first);
  return names;
}

/// Types of a cache that a model runs with.
std::vector<std::string> cache_types() {
  std::vector<std::string> names = with_first("auto", kv_dtype_names());
  for (const CacheFormat format : kCacheFormats) names.emplace_back(name_of(format));
  return names;
}

/// Rows of one command stand before those of all.
const std::vector<ValueRow>& value_rows() {
  static const std::vector<ValueRow> kRows = {
      {"sweep", "file", ValueKind::kFile},
      {"completion", "shell", ValueKind::kChoice, completion_shells()},
      {"", "model", ValueKind::kFolder},
      {"", "checkpoint", ValueKind::kFolder},
      {"", "overlay", ValueKind::kFolder},
      {"", "output", ValueKind::kFolder, {}, false, true},
      {"", "--model", ValueKind::kFolder},
      {"", "--output", ValueKind::kFolder, {}, false, true},
      {"", "--plots", ValueKind::kFolder, {}, false, true},
      {"", "--reference", ValueKind::kFolder},
      {"", "--state", ValueKind::kFolder, {}, false, true},
      {"", "--scales", ValueKind::kPath},
      {"", "--config", ValueKind::kFile},
      {"synth", "--from", ValueKind::kFolder},
      {"", "--dataset", ValueKind::kPath},
      {"", "--fewshot-dataset", ValueKind::kFile},
      {"", "--html", ValueKind::kFile, {}, false, true},
      {"", "--log-samples", ValueKind::kFile, {}, false, true},
      {"", "--output-recipe", ValueKind::kFile, {}, false, true},
      {"", "--recipe", ValueKind::kFile},
      {"", "--save-statistics", ValueKind::kFile, {}, false, true},
      {"", "--statistics", ValueKind::kFile},
      {"", "--device", ValueKind::kChoice, with_first("auto", kBackends.names())},
      {"", "--inputs", ValueKind::kChoice, {"as-served", "16bit"}},
      {"", "--compute-dtype", ValueKind::kChoice, {"auto", "float32", "bfloat16", "float16"}},
      {"", "--format", ValueKind::kChoice, kWriters.names(), true},
      {"", "--weights", ValueKind::kChoice, {"auto", "shared", "exchange", "local"}},
      {"", "--kv-forward", ValueKind::kChoice, {"quantized", "exact"}},
      {"generate", "--kv-cache-dtype", ValueKind::kChoice, cache_types()},
      {"eval", "--kv-cache-dtype", ValueKind::kChoice, cache_types()},
      {"eval", "--reference-kv-cache-dtype", ValueKind::kChoice, cache_types()},
      {"calibrate",
       "--kv-cache-dtype",
       ValueKind::kChoice,
       {"fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2", "nvfp4"}},
      {"scales",
       "--kv-cache-dtype",
       ValueKind::kChoice,
       {"fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2", "nvfp4"}},
      {"eval", "--task", ValueKind::kChoice, {"perplexity", "kl", "gsm8k", "sensitivity"}},
      {"", "--family-file", ValueKind::kFile},
      {"", "--engine", ValueKind::kChoice, with_first("all", engine_rules().names())},
  };
  return kRows;
}

const ValueRow* find_row(std::string_view command, std::string_view option) {
  const auto& rows = value_rows();
  const auto row = std::ranges::find_if(rows, [&](const ValueRow& one) {
    return one.option == option && (one.command.empty() || one.command == command);
  });
  return row == rows.end() ? nullptr : &*row;
}

/// Adds what an option's type does not say of its values: a file or a folder, or the names that it
/// takes where the command checks them itself. An option that is not in the table keeps its kind.
void add_option_values(std::string_view command, std::string_view option,
                       OptionDescription& described) {
  const ValueRow* row = find_row(command, option);
  if (!row) return;
  described.kind = row->kind;
  described.choices = row->choices;
  described.are_choices_joined = row->are_choices_joined;
}

/// Names that options had before: still taken, and shown nowhere.
constexpr std::string_view kOldNames[] = {"--num-calibration-samples", "--report", "--to"};

/// What has its place and no name. An option with both is shown by its name.
bool is_argument(const CLI::Option& option) {
  return option.get_positional() && option.get_lnames().empty();
}

std::vector<std::string> names_of(const CLI::Option& option) {
  if (is_argument(option)) return {option.get_name(true)};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    if (std::ranges::find(kOldNames, "--" + name) == std::end(kOldNames))
      names.push_back("--" + name);
  return names;
}

/// The text between the first opening bracket and the last closing one.
std::string_view inside(std::string_view text, char open, char close) {
  const size_t begin = text.find(open), end = text.rfind(close);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return text.substr(begin + 1, end - begin - 1);
}

/// "0 to 4096"; a limit that only keeps numbers from running over is not worth telling.
std::string limits_text(const std::string& least, const std::string& most) {
  constexpr double kMostTold = 1e6;
  return std::strtod(most.c_str(), nullptr) < kMostTold ? least + " to " + most
                                                        : least + " or more";
}

/// CLI11 gives a type and its checks as one text: "INT:INT in [0 - 4096]", "TEXT:{auto,float32}".
void add_type(const std::string& type, OptionDescription& described) {
  const size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  const std::string check = colon == std::string::npos ? "" : type.substr(colon + 1);
  const bool is_number = name == "INT" || name == "UINT" || name == "FLOAT" || check == "NUMBER";
  described.kind = is_number ? ValueKind::kNumber : ValueKind::kText;
  if (name == "BOOLEAN") {
    described.kind = ValueKind::kChoice;
    described.choices = {"true", "false"};
  }
  constexpr std::string_view kTo = " - ";
  const std::string_view range = inside(check, '[', ']');
  if (const size_t to = range.find(kTo); to != std::string_view::npos)
    described.limits =
        limits_text(std::string(range.substr(0, to)), std::string(range.substr(to + kTo.size())));
  if (!check.starts_with('{')) return;
  described.kind = ValueKind::kChoice;
  std::istringstream choices{std::string(inside(check, '{', '}'))};
  for (std::string choice; std::getline(choices, choice, ',');) described.choices.push_back(choice);
}

OptionDescription option_description(const CLI::App& command, const CLI::Option& option,
                                     const std::string& group) {
  OptionDescription described;
  described.names = names_of(option);
  described.help = option.get_description();
  described.default_value = option.get_default_str();
  described.group = group;
  described.is_required = option.get_required();
  described.is_repeatable = option.get_items_expected_max() > 1;
  if (option.get_items_expected_max() == 0) {
    described.kind = ValueKind::kNone;
    described.default_value.clear();
    return described;
  }
  add_type(option.get_type_name(), described);
  add_option_values(command.get_name(), described.names.back(), described);
  return described;
}

/// Adds the options of `of`, which is the command or one of its groups, to the command's.
void add_options(const CLI::App& command, const CLI::App& of, CommandDescription& described) {
  const std::string group = of.get_name().empty() ? of.get_group() : "";
  for (const CLI::Option* option : of.get_options()) {
    // CLI11 gives a group a help option of its own, which its command has.
    if (option->get_group().empty() || (&of != &command && option == of.get_help_ptr())) continue;
    (is_argument(*option) ? described.arguments : described.options)
        .push_back(option_description(command, *option, group));
  }
}

bool is_visible_command(const CLI::App& command) {
  return !command.get_name().empty() && !command.get_group().empty();
}

/// The command and its option groups, which CLI11 keeps as subcommands without a name.
std::vector<const CLI::App*> with_groups(const CLI::App& command) {
  std::vector<const CLI::App*> all = {&command};
  for (const CLI::App* group : command.get_subcommands({}))
    if (group->get_name().empty()) all.push_back(group);
  return all;
}

CommandDescription description_of_command(const CLI::App& command) {
  CommandDescription described{.name = command.get_name(),
                               .help = command.get_description(),
                               .options = {},
                               .arguments = {}};
  for (const CLI::App* of : with_groups(command)) add_options(command, *of, described);
  group_options(described);
  add_guide(described);
  return described;
}

/// Commands that take the name of another.
void add_command_names(ProgramDescription& described) {
  std::vector<std::string> names;
  for (const CommandDescription& command : described.commands) names.push_back(command.name);
  for (CommandDescription& command : described.commands)
    for (OptionDescription& argument : command.arguments)
      if (argument.names.front() == "command") {
        argument.kind = ValueKind::kChoice;
        argument.choices = names;
      }
}

ExitStatusMeaning meaning(ExitStatus status, const char* text) {
  return {static_cast<int>(status), text};
}

}  // namespace

std::vector<std::string> written_paths(const CLI::App& command) {
  const auto is_written = [&](const std::string& name) {
    const ValueRow* row = find_row(command.get_name(), name);
    return row && row->is_written;
  };
  std::vector<std::string> paths;
  for (const CLI::App* of : with_groups(command))
    for (const CLI::Option* option : of->get_options())
      if (std::ranges::any_of(names_of(*option), is_written)) {
        const std::vector<std::string> given = option->results();
        paths.insert(paths.end(), given.begin(), given.end());
      }
  return paths;
}

ProgramDescription description_of(const CLI::App& app) {
  ProgramDescription described{
      .version = KVCAL_VERSION,
      .program = description_of_command(app),
      .commands = {},
      .exit_statuses = {
          meaning(ExitStatus::kDone, "The work is done."),
          meaning(ExitStatus::kBadInput,
                  "An input or the machine does not allow it; the message says what was found "
                  "where."),
          meaning(ExitStatus::kUsage, "The command line is wrong."),
          meaning(ExitStatus::kGateMissed,
                  "The work is done, and a limit that an option set is exceeded."),
          meaning(ExitStatus::kInterrupted, "A signal ended it.")}};
  for (const CLI::App* command : app.get_subcommands({}))
    if (is_visible_command(*command))
      described.commands.push_back(description_of_command(*command));
  add_command_names(described);
  return described;
}

}  // namespace kvcal
