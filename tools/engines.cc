#include "engines/engine_list.h"

#include <iostream>

#include "commands.h"

namespace kvcal {
namespace {

struct EnginesOptions {
  std::string model_type;
  bool markdown = false, json = false;
};

void run_engines(const EnginesOptions& options) {
  if (options.markdown)
    std::cout << engines_markdown();
  else if (options.json)
    std::cout << dump_json(engines_json(options.model_type));
  else
    std::cout << engines_text(options.model_type);
}

}  // namespace

void add_engines(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<EnginesOptions>();
  CLI::App* command = app.add_subcommand(
      "engines", "List the serving engines, or which formats they read for a family");
  CLI::Option* type =
      command->add_option("model_type", options->model_type, "model_type of config.json, as qwen3");
  CLI::Option* markdown = command->add_flag("--markdown", options->markdown,
                                            "Print the table that docs/models.md holds");
  markdown->excludes(type);
  command->add_flag("--json", options->json, "Print JSON instead of text")->excludes(markdown);
  command->callback([options, &run] { run = [options] { run_engines(*options); }; });
}

}  // namespace kvcal
