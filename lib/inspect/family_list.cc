#include "inspect/family_list.h"

#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/join.h"
#include "family/model_type_support.h"
#include "family/wrapper.h"
#include "inspect/variations.h"

namespace kvcal {
namespace {

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

/// config.json's model_types, each between quotes.
std::string type_text(const Architecture& architecture, const std::string& quote) {
  return join(architecture.model_types, ", ",
              [&](std::string_view type) { return quote + std::string(type) + quote; });
}

/// The type of a wrapper's text part; text_config names those that differ.
std::string text_type_text(const Wrapper& wrapper, const std::string& quote) {
  const std::string own =
      wrapper.text_type.empty() ? "" : quote + std::string(wrapper.text_type) + quote;
  if (wrapper.rules.has_one_text_type) return own;
  return own.empty() ? "as text_config says" : own + ", or as text_config says";
}

std::string words_or_dash(const Architecture& architecture) {
  const std::string words = join(variation_words(architecture), ", ");
  return words.empty() ? "–" : words;
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

}  // namespace

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

std::string families_markdown() {
  std::ostringstream out;
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
  return out.str();
}

std::string families_text() {
  std::ostringstream out;
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
  return out.str();
}

Json model_types_json(const std::vector<std::string>& model_types) {
  Json types = Json::array();
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    types.push_back(
        {{"model_type", type}, {"support", support_word(found.support)}, {"detail", found.detail}});
  }
  return {{"types", types}};
}

std::string model_types_text(const std::vector<std::string>& model_types) {
  std::string text;
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    text += type + ": " + std::string(support_word(found.support)) + ", " + detail_text(found, "") +
            '\n';
  }
  return text;
}

std::string model_types_markdown(const std::vector<std::string>& model_types) {
  std::string text = "| `model_type` | | |\n| --- | --- | --- |\n";
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    text += "| `" + type + "` | " + std::string(support_word(found.support)) + " | " +
            detail_text(found, "`") + " |\n";
  }
  return text;
}

}  // namespace kvcal
