#include "shell/description.h"

#include <algorithm>

#include "core/text.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// A command with these options; "TITLE:--name" has a title.
CommandDescription command_of(const std::string& name, const std::vector<std::string>& options) {
  CommandDescription command{.name = name, .help = "", .options = {}, .arguments = {}};
  for (const std::string& text : options) {
    OptionDescription option;
    const size_t colon = text.find(':');
    if (colon != std::string::npos) option.group = text.substr(0, colon);
    option.names = {colon == std::string::npos ? text : text.substr(colon + 1)};
    command.options.push_back(option);
  }
  complete_description(command);
  return command;
}

std::string shown(const std::vector<std::string>& options) {
  return join(command_of("command", options).options, " ", [](const OptionDescription& option) {
    return option.group + ":" + option.names.back();
  });
}

bool has_variable(const CommandDescription& command, const std::string& names) {
  return std::ranges::any_of(command.environment,
                             [&](const auto& variable) { return variable.names == names; });
}

}  // namespace

TEST_CASE("option groups: few options are put in order and get no titles") {
  CHECK(shown({"Printing:--quiet", "Output:--output", "Model and data:--model"}) ==
        ":--model :--output :--quiet");
}

TEST_CASE("option groups: many options come together under titles") {
  CHECK(shown({"Printing:--help", "Machine:--threads", "Model and data:--model", "Machine:--device",
               "Recipe:--recipe", "Output:--output", "Output:--format", "Printing:--json",
               "Generation:--seed", "Engine:--for", "Cells:--cell"}) ==
        "Model and data:--model Recipe:--recipe Cells:--cell Engine:--for Generation:--seed "
        "Output:--output Output:--format Machine:--threads Machine:--device Printing:--help "
        "Printing:--json");
}

TEST_CASE("option groups: options that have a title keep it, behind the others") {
  CHECK(shown({"Options of --task kl:--max-kl", "Printing:--json", "Model and data:--model"}) ==
        ":--model :--json Options of --task kl:--max-kl");
}

TEST_CASE("command guide: variables follow from what a command takes") {
  CHECK(command_of("version", {}).environment.empty());
  const CommandDescription takes_models = command_of("generate", {"--family"});
  CHECK(has_variable(takes_models, "HF_ENDPOINT"));
  CHECK_FALSE(has_variable(takes_models, "COLUMNS"));
  const CommandDescription shows_progress = command_of("synth", {"--quiet"});
  CHECK(has_variable(shows_progress, "COLUMNS"));
  CHECK_FALSE(has_variable(shows_progress, "HF_ENDPOINT"));
  CHECK(has_variable(command_of("calibrate", {"--device"}), "KVCAL_GPU_LIBRARY_PATH"));
  CHECK(has_variable(command_of("calibrate", {"--device"}), "KVCAL_GPU_ATTENTION"));
  CHECK_FALSE(has_variable(takes_models, "KVCAL_GPU_LIBRARY_PATH"));
  CHECK(has_variable(command_of("man", {}), "SOURCE_DATE_EPOCH"));
  const CommandDescription program = command_of("kvcal", {});
  CHECK(has_variable(program, "HF_ENDPOINT"));
  CHECK(has_variable(program, "COLUMNS"));
}
