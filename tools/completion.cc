#include <iostream>

#include "command_description.h"
#include "commands.h"
#include "shell/completion.h"

namespace kvcal {

void add_completion(CLI::App& app, std::function<void()>& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print the script that completes command lines of kvcal in a shell");
  add_text(*command, "shell", *shell, "bash, zsh or fish")->required();
  command->callback([shell, &app, &run] {
    run = [shell, &app] { std::cout << completion_script(*shell, description_of(app)); };
  });
}

}  // namespace kvcal
