#include <iostream>

#include "commands.h"
#include "core/join.h"
#include "inspect/variations.h"

namespace kvcal {
namespace {

struct FamiliesOptions {
  bool markdown = false, json = false;
};

Json families_json() {
  Json families = Json::array(), refused = Json::array();
  for (const Architecture& architecture : architectures())
    families.push_back({{"name", architecture.name},
                        {"model_types", architecture.model_types},
                        {"wrapper_types", architecture.wrapper_types},
                        {"models", architecture.description},
                        {"variations", variation_words(architecture)},
                        {"attention_class", architecture.attention_class}});
  for (const RefusedModelType& type : refused_model_types())
    refused.push_back({{"model_type", type.model_type}, {"reason", type.reason}});
  return {{"families", families}, {"refused", refused}};
}

/// config.json's model_types, also of multimodal checkpoints, each between quotes.
std::string type_text(const Architecture& architecture, const std::string& quote) {
  std::vector<std::string> types;
  for (const auto* list : {&architecture.model_types, &architecture.wrapper_types})
    for (const std::string_view type : *list) types.push_back(quote + std::string(type) + quote);
  return join(types, ", ");
}

std::string words_or_dash(const Architecture& architecture) {
  const std::string words = join(variation_words(architecture), ", ");
  return words.empty() ? "–" : words;
}

void print_markdown(std::ostream& out) {
  out << "| family | `model_type` | models | apart from Llama | attention class |\n"
         "| --- | --- | --- | --- | --- |\n";
  for (const Architecture& architecture : architectures())
    out << "| " << architecture.name << " | " << type_text(architecture, "`") << " | "
        << architecture.description << " | " << words_or_dash(architecture) << " | `"
        << architecture.attention_class << "` |\n";
  out << "\nRefused by name:\n\n| `model_type` | why |\n| --- | --- |\n";
  for (const RefusedModelType& type : refused_model_types())
    out << "| `" << type.model_type << "` | " << type.reason << " |\n";
}

void print_text(std::ostream& out) {
  for (const Architecture& architecture : architectures()) {
    out << architecture.name << ": " << architecture.description << '\n'
        << "  model_type       " << type_text(architecture, "") << '\n'
        << "  attention class  " << architecture.attention_class << '\n';
    const std::string words = join(variation_words(architecture), ", ");
    out << "  variations       " << (words.empty() ? "as Llama" : words) << '\n';
  }
  out << "\nRefused:\n";
  for (const RefusedModelType& type : refused_model_types())
    out << "  " << type.model_type << ": " << type.reason << '\n';
}

void run_families(const FamiliesOptions& options) {
  if (options.json) {
    std::cout << dump_json(families_json());
  } else {
    (options.markdown ? print_markdown : print_text)(std::cout);
  }
}

}  // namespace

void add_families(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<FamiliesOptions>();
  CLI::App* command = app.add_subcommand(
      "families", "List the model families, their variations, and what is refused by name");
  CLI::Option* markdown = command->add_flag("--markdown", options->markdown,
                                            "Print the table that docs/models.md holds");
  command->add_flag("--json", options->json, "Print JSON instead of text")->excludes(markdown);
  command->callback([options, &run] { run = [options] { run_families(*options); }; });
}

}  // namespace kvcal
