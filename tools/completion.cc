#include "completion.h"

#include <iostream>

#include "commands.h"
#include "core/registry.h"

namespace kvcal {

std::string joined(const std::vector<std::string>& words, const std::string& sep) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : sep) + word;
  return text;
}

std::string escaped(const std::string& text, const std::string& special,
                    const std::string& escape) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += escape;
    result += c;
  }
  return result;
}

namespace {

using MakeCompletion = std::string (*)(const CommandFacts& program,
                                       const std::vector<CommandFacts>& commands);
const Registry<MakeCompletion> kShells{
    "shell", {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};

void run_completion(const CLI::App& app, const std::string& shell) {
  const MakeCompletion make = kShells.at(shell);
  std::cout << make(facts_of(app), facts_of_commands(app));
}

}  // namespace

void add_completion(CLI::App& app, std::function<void()>& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print the script that completes command lines of kvcal in a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(is_not_empty());
  command->callback([shell, &app, &run] { run = [shell, &app] { run_completion(app, *shell); }; });
}

}  // namespace kvcal
