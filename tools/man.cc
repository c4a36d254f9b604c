#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "commands.h"
#include "core/registry.h"
#include "man_page.h"

namespace kvcal {
namespace {

struct ManOptions {
  std::string command;
  bool is_list = false;
};

/// The day that SOURCE_DATE_EPOCH names, so that two builds of one source give the same page; empty
/// where it is not set. Throws Error where it is no number.
std::string date_of_source() {
  const char* text = std::getenv("SOURCE_DATE_EPOCH");
  if (text == nullptr) return "";
  const std::string_view digits = text;
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  constexpr int64_t kLastSecond = 253402300799;  // of the year 9999
  if (error != std::errc() || end != digits.data() + digits.size() || seconds < 0 ||
      seconds > kLastSecond)
    fail("SOURCE_DATE_EPOCH is '", digits, "', expected seconds since 1970");
  const auto time = static_cast<std::time_t>(seconds);
  std::tm day{};
  gmtime_r(&time, &day);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", &day);
  return date;
}

void run_man(const CLI::App& app, const ManOptions& options) {
  const std::vector<CommandFacts> commands = facts_of_commands(app);
  if (options.is_list) {
    std::cout << "kvcal\n";
    for (const CommandFacts& command : commands) std::cout << "kvcal-" << command.name << '\n';
    return;
  }
  const std::string date = date_of_source();
  if (options.command.empty()) {
    std::cout << man_page_of_program(facts_of(app), commands, date);
    return;
  }
  std::vector<std::string> names;
  for (const CommandFacts& command : commands) {
    if (command.name == options.command) {
      std::cout << man_page_of_command(command, date);
      return;
    }
    names.push_back(command.name);
  }
  fail("man: unknown command '", options.command, "'", did_you_mean(options.command, names));
}

}  // namespace

void add_man(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ManOptions>();
  CLI::App* command = app.add_subcommand("man", "Print the man page of kvcal or of a command");
  command->add_option("command", options->command, "Default: the page of kvcal itself")
      ->check(is_not_empty());
  command->add_flag("--list", options->is_list, "Print the names of all pages");
  command->callback([options, &app, &run] { run = [options, &app] { run_man(app, *options); }; });
}

}  // namespace kvcal
