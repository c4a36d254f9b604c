#include "shell/option_groups.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace kvcal {
namespace {

struct OptionGroup {
  std::string title;
  std::vector<std::string_view> options;  ///< by their last names
};

/// In the order of the help; the same for all commands.
const std::vector<OptionGroup>& option_groups() {
  static const std::vector<OptionGroup> kGroups = {
      {"Model and data",
       {"--model",
        "--config",
        "--from",
        "--outliers",
        "--layers",
        "--dtype",
        "--statistics",
        "--task",
        "--dataset",
        "--text-column",
        "--prompt-column",
        "--response-column",
        "--messages-column",
        "--chat-template",
        "--chat-template-kwargs",
        "--skip-bad-records",
        "--max-record-bytes",
        "--num-samples",
        "--max-seq-length",
        "--shuffle-seed",
        "--prompt",
        "--chat",
        "--system",
        "--family",
        "--family-file"}},
      {"Recipe",
       {"--recipe", "--scheme", "--ignore", "--kv-forward", "--moe-all-experts", "--no-mtp",
        "--stop-when-stable", "--stable-samples"}},
      {"Cache and scales",
       {"--kv-cache-dtype", "--kv-cache-dtype-skip-layers", "--kl-budget", "--smooth",
        "--every-cache", "--scale-dtype", "--scales", "--unit-scales", "--fp8-attention",
        "--headroom", "--strategy", "--fp8-dialect", "--allow-16-bit"}},
      {"Cells", {"--template", "--list", "--cell", "--collect"}},
      {"Engine", {"--engine", "--for", "--rocm", "--tp-size"}},
      {"Generation",
       {"--max-new-tokens", "--compare", "--temperature", "--top-p", "--top-k", "--seed",
        "--ignore-eos"}},
      {"Output",
       {"--output", "--format", "--scales-only", "--max-shard-size", "--overwrite",
        "--save-statistics", "--reproducible", "--html", "--plots"}},
      {"Accuracy", {"--measure", "--measure-sequences", "--fp8-only"}},
      {"Machine",
       {"--device", "--compute-dtype", "--inputs", "--threads", "--jobs", "--batch-tokens",
        "--memory-limit"}},
      {"Interruptions and several machines",
       {"--state", "--state-share", "--resume", "--weights", "--rank-timeout"}},
      {"Options", {}},
      {"Printing", {"--dry-run", "--advise", "--json", "--verbose", "--quiet", "--help"}}};
  return kGroups;
}

constexpr size_t kFewOptions = 10;

/// Place of the option's group, and in it; of an unknown one in "Options".
std::pair<size_t, size_t> place_of(const OptionDescription& option) {
  const auto& groups = option_groups();
  size_t others = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].options.empty()) others = i;
    const auto found = std::ranges::find(groups[i].options, option.names.back());
    if (found != groups[i].options.end())
      return {i, static_cast<size_t>(found - groups[i].options.begin())};
  }
  return {others, 0};
}

}  // namespace

void group_options(CommandDescription& command) {
  const auto place = [&](const OptionDescription& option) {
    return option.group.empty() ? place_of(option) : std::pair{option_groups().size(), size_t{0}};
  };
  std::stable_sort(command.options.begin(), command.options.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  if (command.options.size() <= kFewOptions) return;
  for (OptionDescription& option : command.options)
    if (option.group.empty()) option.group = option_groups()[place(option).first].title;
}

}  // namespace kvcal
