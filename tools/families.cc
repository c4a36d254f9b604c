#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/join.h"
#include "descriptors/family_template.h"
#include "family/model_type_support.h"
#include "family/wrapper.h"
#include "inspect/variations.h"

namespace kvcal {
namespace {

struct FamiliesOptions {
  std::vector<std::string> types;
  bool markdown = false, json = false;
  std::optional<std::string> templated;  ///< name of a family; empty: none of its own
};

std::string_view support_word(Support support) {
  switch (support) {
    case Support::kRuns:
      return "runs";
    case Support::kWrapper:
      return "wrapper";
    case Support::kRefused:
      return "refused";
    case Support::kUnknown:
      return "unknown";
  }
  KVCAL_CHECK(false);
  return "";
}

Json families_json() {
  Json families = Json::array(), wrapped = Json::array(), refused = Json::array();
  for (const Architecture& architecture : architectures())
    families.push_back({{"name", architecture.name},
                        {"model_types", architecture.model_types},
                        {"models", architecture.description},
                        {"variations", variation_words(architecture)},
                        {"attention_class", architecture.attention_class}});
  for (const Wrapper& wrapper : wrappers())
    wrapped.push_back({{"model_type", wrapper.model_type},
                       {"models", wrapper.description},
                       {"text_type", wrapper.text_type}});
  for (const RefusedModelType& type : refused_model_types())
    refused.push_back({{"model_type", type.model_type}, {"reason", type.reason}});
  return {{"families", families}, {"wrappers", wrapped}, {"refused", refused}};
}

/// config.json's model_types, each between quotes.
std::string type_text(const Architecture& architecture, const std::string& quote) {
  return join(architecture.model_types, ", ",
              [&](std::string_view type) { return quote + std::string(type) + quote; });
}

/// The type of a wrapper's text part; text_config names those that differ.
std::string text_type_text(const Wrapper& wrapper, const std::string& quote) {
  const std::string own =
      wrapper.text_type.empty() ? "" : quote + std::string(wrapper.text_type) + quote;
  if (wrapper.has_one_text_type) return own;
  return own.empty() ? "as text_config says" : own + ", or as text_config says";
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
  out << "\nMultimodal checkpoints, of which the text model runs:\n\n"
         "| `model_type` | models | text model |\n| --- | --- | --- |\n";
  for (const Wrapper& wrapper : wrappers())
    out << "| `" << wrapper.model_type << "` | " << wrapper.description << " | "
        << text_type_text(wrapper, "`") << " |\n";
}

void print_text(std::ostream& out) {
  for (const Architecture& architecture : architectures()) {
    out << architecture.name << ": " << architecture.description << '\n'
        << "  model_type       " << type_text(architecture, "") << '\n'
        << "  attention class  " << architecture.attention_class << '\n';
    const std::string words = join(variation_words(architecture), ", ");
    out << "  variations       " << (words.empty() ? "as Llama" : words) << '\n';
  }
  out << "\nMultimodal checkpoints, of which the text model runs:\n";
  for (const Wrapper& wrapper : wrappers())
    out << "  " << wrapper.model_type << ": " << wrapper.description << "; text model "
        << text_type_text(wrapper, "") << '\n';
  out << "\nRefused:\n";
  for (const RefusedModelType& type : refused_model_types())
    out << "  " << type.model_type << ": " << type.reason << '\n';
}

/// The start of a file for --family-file, or the file of a built-in family.
void print_template(const std::string& name, std::ostream& out) {
  if (name.empty())
    out << empty_family_template();
  else
    out << family_template(
        *in_context("--template", [&] { return choose_family(name); }).architecture);
}

std::string detail_text(const ModelTypeSupport& found, const std::string& quote) {
  const std::string detail(found.detail);
  switch (found.support) {
    case Support::kRuns:
      return "as " + detail;
    case Support::kWrapper:
      return detail.empty() ? "of the text model that text_config names"
                            : "of " + quote + detail + quote;
    case Support::kRefused:
      return detail;
    case Support::kUnknown:
      return "in no table";
  }
  KVCAL_CHECK(false);
  return detail;
}

void print_types(const FamiliesOptions& options, std::ostream& out) {
  const std::string quote = options.markdown ? "`" : "";
  if (options.markdown) out << "| `model_type` | | |\n| --- | --- | --- |\n";
  Json types = Json::array();
  for (const std::string& type : options.types) {
    const ModelTypeSupport found = support_of(type);
    const std::string_view word = support_word(found.support);
    types.push_back({{"model_type", type}, {"support", word}, {"detail", found.detail}});
    if (options.markdown)
      out << "| `" << type << "` | " << word << " | " << detail_text(found, quote) << " |\n";
    else if (!options.json)
      out << type << ": " << word << ", " << detail_text(found, quote) << '\n';
  }
  if (options.json) out << dump_json({{"types", types}});
}

void run_families(const FamiliesOptions& options) {
  if (options.templated) return print_template(*options.templated, std::cout);
  if (!options.types.empty()) {
    print_types(options, std::cout);
  } else if (options.json) {
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
  command->callback([options, &run] { run = [options] { run_families(*options); }; });
}

}  // namespace kvcal
