#include "shell/description.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/registry.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr const char* kOptionGroups[] = {kModelAndData, kRecipe,     kCacheAndScales, kCells,
                                         kEngine,       kGeneration, kOutput,         kAccuracy,
                                         kMachine,      kRanks,      kPrinting};

/// Place of the option's title; that of another title is behind all.
auto place_of(const OptionDescription& option) {
  return std::ranges::find(kOptionGroups, option.group) - std::begin(kOptionGroups);
}

void group_options(std::vector<OptionDescription>& options) {
  constexpr size_t kFewOptions = 10;
  std::ranges::stable_sort(options, {}, place_of);
  if (options.size() > kFewOptions) return;
  for (OptionDescription& option : options)
    if (place_of(option) < std::ssize(kOptionGroups)) option.group.clear();
}

bool has_option(const CommandDescription& command, std::string_view name) {
  return std::ranges::any_of(command.options, [&](const OptionDescription& option) {
    return std::ranges::find(option.names, name) != option.names.end();
  });
}

/// Whether it may read a model of the hub.
bool takes_models(const CommandDescription& command) {
  return has_option(command, "--family") || command.name == "quantize";
}

const std::vector<VariableDescription> kOfHub = {
    {"HF_HUB_CACHE, HF_HOME", "Cache of downloaded models and data sets"},
    {"HF_TOKEN, HF_TOKEN_PATH", "Token for the hub, or the file that has it"},
    {"HF_ENDPOINT", "Another hub, such as a mirror"},
    {"HF_HUB_OFFLINE=1", "Download nothing"},
    {"https_proxy, no_proxy", "Proxies of downloads"},
    {"SSL_CERT_FILE", "Certificates that downloads trust, instead of the machine's"},
    {"KVCAL_FOLLOW_LINKS=1",
     "Follow links of a checkpoint or a folder of data that lead out of it"}};
const std::vector<VariableDescription> kOfDevices = {
    {"KVCAL_CPU", "Use no more than these instructions: avx2, avx512, avx512_bf16 or amx_bf16"},
    {"KVCAL_GPU_LIBRARY_PATH", "Files or folders of the GPU's matrix library"},
    {"KVCAL_GPU_ATTENTION", "Instruction of attention on NVIDIA GPUs: mma or, on sm_90a, wgmma"}};
const std::vector<VariableDescription> kOfProgress = {
    {"NO_COLOR, CI, TERM=dumb", "Print progress as plain lines, one in ten seconds"},
    {"COLUMNS", "Width of a terminal that does not tell"}};

void add_environment(CommandDescription& command) {
  const auto add = [&](const std::vector<VariableDescription>& variables) {
    command.environment.insert(command.environment.end(), variables.begin(), variables.end());
  };
  const bool is_program = command.name == "kvcal";
  if (is_program || takes_models(command)) add(kOfHub);
  if (is_program || has_option(command, "--device")) add(kOfDevices);
  if (is_program || has_option(command, "--quiet")) add(kOfProgress);
  if (is_program || command.name == "man")
    add({{"SOURCE_DATE_EPOCH", "Seconds since 1970 of the date that stands on the page"}});
}

}  // namespace

void complete_description(CommandDescription& command) {
  group_options(command.options);
  add_environment(command);
}

std::string OptionDescription::placeholder() const {
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

std::string upper_name(const OptionDescription& argument) {
  return ascii_upper(argument.names.front());
}

bool names_choices(const OptionDescription& option) {
  return std::ranges::all_of(option.choices, [&](const std::string& choice) {
    return option.help.find(choice) != std::string::npos;
  });
}

std::string unknown_command(const ProgramDescription& program, const std::string& name) {
  std::vector<std::string> names;
  for (const CommandDescription& one : program.commands) names.push_back(one.name);
  return "unknown command '" + name + "'" + did_you_mean(name, names) + "; commands are " +
         join(names, ", ");
}

const CommandDescription& command_named(const ProgramDescription& program,
                                        const std::string& name) {
  const auto found = std::ranges::find(program.commands, name, &CommandDescription::name);
  if (found == program.commands.end()) fail(unknown_command(program, name));
  return *found;
}

}  // namespace kvcal
