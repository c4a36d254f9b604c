#include "shell/command_guide.h"

#include <algorithm>

#include "support/catch.h"

using namespace kvcal;

namespace {

CommandDescription guided(const std::string& name, const std::vector<std::string>& options) {
  CommandDescription command{.name = name, .help = "", .options = {}, .arguments = {}};
  for (const std::string& option : options)
    command.options.push_back({.names = {option},
                               .help = "",
                               .default_value = "",
                               .limits = "",
                               .group = "",
                               .choices = {}});
  add_guide(command);
  return command;
}

bool has_variable(const CommandDescription& command, const std::string& names) {
  return std::ranges::any_of(command.environment,
                             [&](const auto& variable) { return variable.names == names; });
}

}  // namespace

TEST_CASE("command guide: a command gets its examples, an unknown one none") {
  const CommandDescription scales = guided("scales", {});
  REQUIRE_FALSE(scales.examples.empty());
  for (const ExampleDescription& example : scales.examples) {
    CHECK(example.line.starts_with("kvcal scales "));
    CHECK_FALSE(example.purpose.empty());
  }
  CHECK(guided("dance", {}).examples.empty());
}

TEST_CASE("command guide: variables follow from what a command takes") {
  CHECK(guided("version", {}).environment.empty());
  const CommandDescription takes_models = guided("generate", {"--family"});
  CHECK(has_variable(takes_models, "HF_ENDPOINT"));
  CHECK_FALSE(has_variable(takes_models, "COLUMNS"));
  const CommandDescription shows_progress = guided("synth", {"--quiet"});
  CHECK(has_variable(shows_progress, "COLUMNS"));
  CHECK_FALSE(has_variable(shows_progress, "HF_ENDPOINT"));
  CHECK(has_variable(guided("calibrate", {"--device"}), "KVCAL_GPU_LIBRARY_PATH"));
  CHECK(has_variable(guided("calibrate", {"--device"}), "KVCAL_GPU_ATTENTION"));
  CHECK_FALSE(has_variable(takes_models, "KVCAL_GPU_LIBRARY_PATH"));
  CHECK(has_variable(guided("man", {}), "SOURCE_DATE_EPOCH"));
  const CommandDescription program = guided("kvcal", {});
  CHECK(has_variable(program, "HF_ENDPOINT"));
  CHECK(has_variable(program, "COLUMNS"));
}
