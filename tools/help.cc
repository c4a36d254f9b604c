#include <cstdlib>
#include <iostream>
#include <utility>

#include "command_description.h"
#include "commands.h"
#include "core/join.h"
#include "core/json.h"
#include "kernels/backends.h"
#include "kvcal_build_facts.h"
#include "kvcal_version.h"
#include "shell/completion.h"
#include "shell/help_page.h"
#include "shell/man_page.h"

// The commands that tell of the program itself: help, man, completion, version.

namespace kvcal {
namespace {

struct ManOptions {
  std::string command;
  bool is_list = false;
};

void run_man(const CLI::App& app, const ManOptions& options) {
  const ProgramDescription program = description_of(app);
  if (options.is_list) {
    std::cout << join(man_page_names(program), "\n") << '\n';
    return;
  }
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  std::cout << man_page(program, options.command, epoch ? date_of_epoch(epoch) : "");
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

void add_help(CLI::App& app, std::function<void()>& run) {
  auto command_name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Print the help of kvcal or of a command");
  add_text(*command, "command", *command_name, "Default: the help of kvcal itself");
  command->callback([command_name, &app, &run] {
    run = [command_name, &app] { std::cout << help_page(description_of(app), *command_name); };
  });
}

void add_man(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ManOptions>();
  CLI::App* command = app.add_subcommand("man", "Print the man page of kvcal or of a command");
  add_text(*command, "command", options->command, "Default: the page of kvcal itself");
  command->add_flag("--list", options->is_list, "Print the names of all pages");
  command->callback([options, &app, &run] { run = [options, &app] { run_man(app, *options); }; });
}

void add_completion(CLI::App& app, std::function<void()>& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print the script that completes command lines of kvcal in a shell");
  add_text(*command, "shell", *shell, "bash, zsh or fish")->required();
  command->callback([shell, &app, &run] {
    run = [shell, &app] { std::cout << completion_script(*shell, description_of(app)); };
  });
}

void add_version(CLI::App& app, std::function<void()>& run) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("version", "Print the version of kvcal");
  command->add_flag("--json", *json, "Print what the program was built of, as JSON");
  command->callback([json, &run] {
    run = [json] { std::cout << (*json ? version_json() : version_text()) << '\n'; };
  });
}

std::string version_text() {
  return "kvcal " KVCAL_VERSION;
}

std::string version_json() {
  static const std::vector<std::pair<std::string, std::string>> kLibraries = {KVCAL_LIBRARIES};
  Json libraries = Json::object();
  for (const auto& [name, version] : kLibraries) libraries[name] = text_or_null(version);
  std::string text =
      dump_json({{"kvcal_version", KVCAL_VERSION},
                 {"commit", text_or_null(KVCAL_COMMIT)},
                 {"compiler", {{"name", KVCAL_COMPILER}, {"version", KVCAL_COMPILER_VERSION}}},
                 {"build_type", KVCAL_BUILD_TYPE},
                 {"processor", KVCAL_PROCESSOR},
                 {"cpu_targets", cpu_target_names()},
                 {"gpu", text_or_null(KVCAL_GPU_LANGUAGE)},
                 {"mpi", KVCAL_BUILT_WITH_MPI == 1},
                 {"arrow", KVCAL_BUILT_WITH_ARROW == 1},
                 {"curl", KVCAL_BUILT_WITH_CURL == 1},
                 {"libraries", libraries}});
  text.pop_back();  // CLI11 ends the line
  return text;
}

}  // namespace kvcal
