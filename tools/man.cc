#include <cstdlib>
#include <iostream>

#include "command_description.h"
#include "commands.h"
#include "core/join.h"
#include "shell/man_page.h"

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

}  // namespace

void add_man(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ManOptions>();
  CLI::App* command = app.add_subcommand("man", "Print the man page of kvcal or of a command");
  add_text(*command, "command", options->command, "Default: the page of kvcal itself");
  command->add_flag("--list", options->is_list, "Print the names of all pages");
  command->callback([options, &app, &run] { run = [options, &app] { run_man(app, *options); }; });
}

}  // namespace kvcal
