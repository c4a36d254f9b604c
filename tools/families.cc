#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "descriptors/family_template.h"
#include "family/model_type_support.h"
#include "inspect/family_list.h"

namespace kvcal {
namespace {

struct FamiliesOptions {
  std::vector<std::string> types;
  bool markdown = false, json = false;
  std::optional<std::string> templated;  ///< name of a family; empty: none of its own
};

/// The start of a file for --family-file, or the file of a built-in family.
std::string template_text(const std::string& name) {
  if (name.empty()) return empty_family_template();
  return family_template(
      *in_context("--template", [&] { return choose_family(name); }).architecture);
}

std::string text_of(const FamiliesOptions& options) {
  const std::vector<std::string>& types = options.types;
  if (options.templated) return template_text(*options.templated);
  if (options.json) return dump_json(types.empty() ? families_json() : model_types_json(types));
  if (options.markdown) return types.empty() ? families_markdown() : model_types_markdown(types);
  return types.empty() ? families_text() : model_types_text(types);
}

}  // namespace

void add_families(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<FamiliesOptions>();
  CLI::App* command = app.add_subcommand(
      "families", "List the model families, their variations, and what is refused by name");
  CLI::Option* types =
      command->add_option("MODEL_TYPE", options->types,
                          "Say of each whether it runs, is a wrapper, is refused, or is unknown");
  CLI::Option* markdown = command->add_flag("--markdown", options->markdown,
                                            "Print the table that docs/models.md holds");
  CLI::Option* json =
      command->add_flag("--json", options->json, "Print JSON instead of text")->excludes(markdown);
  command
      ->add_option("--template", options->templated,
                   "Print a file for --family-file with comments: one to start from, or that of a "
                   "family by its name")
      ->expected(0, 1)
      ->excludes(types)
      ->excludes(markdown)
      ->excludes(json);
  command->callback([options, &run] { run = [options] { std::cout << text_of(*options); }; });
}

}  // namespace kvcal
