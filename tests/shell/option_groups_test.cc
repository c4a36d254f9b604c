#include "shell/option_groups.h"

#include "core/join.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// A command with these options; "TITLE:--name" has a title of its own.
CommandDescription command_of(const std::vector<std::string>& options) {
  CommandDescription command{.name = "command", .help = "", .options = {}, .arguments = {}};
  for (const std::string& text : options) {
    OptionDescription option;
    const size_t colon = text.find(':');
    if (colon != std::string::npos) option.group = text.substr(0, colon);
    option.names = {colon == std::string::npos ? text : text.substr(colon + 1)};
    command.options.push_back(option);
  }
  group_options(command);
  return command;
}

std::string shown(const CommandDescription& command) {
  return join(command.options, " ", [](const OptionDescription& option) {
    return option.group + ":" + option.names.back();
  });
}

}  // namespace

TEST_CASE("option groups: few options are put in order and get no titles") {
  CHECK(shown(command_of({"--quiet", "--output", "--model", "--unknown"})) ==
        ":--model :--output :--unknown :--quiet");
}

TEST_CASE("option groups: many options come together under titles") {
  CHECK(shown(command_of({"--help", "--threads", "--model", "--device", "--recipe", "--output",
                          "--format", "--json", "--unknown", "--seed", "--for"})) ==
        "Model and data:--model Recipe:--recipe Engine:--for Generation:--seed Output:--output "
        "Output:--format Machine:--device Machine:--threads Options:--unknown Printing:--json "
        "Printing:--help");
}

TEST_CASE("option groups: options that have a title keep it, behind the others") {
  CHECK(shown(command_of({"Options of --task kl:--max-kl", "--json", "--model"})) ==
        ":--model :--json Options of --task kl:--max-kl");
}
