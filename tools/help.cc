#include <iostream>

#include "command_description.h"
#include "commands.h"
#include "shell/help_page.h"

namespace kvcal {

void add_help(CLI::App& app, std::function<void()>& run) {
  auto command_name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Print the help of kvcal or of a command");
  add_text(*command, "command", *command_name, "Default: the help of kvcal itself");
  command->callback([command_name, &app, &run] {
    run = [command_name, &app] { std::cout << help_page(description_of(app), *command_name); };
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

}  // namespace kvcal
