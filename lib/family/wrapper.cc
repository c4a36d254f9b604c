#include "family/wrapper.h"

#include <algorithm>

#include "core/join.h"
#include "core/registry.h"
#include "family/architecture.h"
#include "family/expected_tensors.h"
#include "family/model_type_support.h"

namespace kvcal {
FamilyChoice choose_family(std::string_view name) {
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    if (normalised_name(architecture.name) == normalised_name(name))
      return {.architecture = &architecture,
              .option = "--family",
              .value = std::string(architecture.name)};
    known.emplace_back(architecture.name);
  }
  fail("unknown family '", name, "'", did_you_mean(name, known),
       "; kvcal families lists the known");
}

namespace {

const Architecture* architecture_of(std::string_view model_type) {
  const auto it = std::ranges::find_if(architectures(), [&](const Architecture& architecture) {
    return std::ranges::find(architecture.model_types, model_type) !=
           architecture.model_types.end();
  });
  return it == architectures().end() ? nullptr : &*it;
}

const Wrapper* wrapper_of(std::string_view model_type) {
  const auto it = std::ranges::find(wrappers(), model_type, &Wrapper::model_type);
  return it == wrappers().end() ? nullptr : &*it;
}

void refuse_by_name(std::string_view model_type) {
  const std::string_view reason = refusal_of(model_type);
  if (!reason.empty()) fail("model_type '", model_type, "' is not supported: ", reason);
}

[[noreturn]] void refuse_unknown(std::string_view model_type) {
  refuse_by_name(model_type);
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures())
    known.insert(known.end(), architecture.model_types.begin(), architecture.model_types.end());
  for (const Wrapper& wrapper : wrappers()) known.emplace_back(wrapper.model_type);
  fail("model_type '", model_type, "' is not supported",
       did_you_mean(std::string(model_type), known),
       "; kvcal families lists what is; --family runs another type as one of them");
}

/// Throws Error for a model_type of another family than the chosen one.
void check_is_of(const Architecture& architecture, std::string_view model_type,
                 const FamilyChoice& family) {
  if (family && family.architecture != &architecture)
    fail("model_type '", model_type, "' is known and runs as the family ", architecture.name, "; ",
         family.text(), " is for types that are not known");
}

/// The choice for a model_type that no family has. Throws Error where there is none, where the type
/// is refused by name, and where the family's file lists other types.
FamilyChoice chosen_for(std::string_view model_type, const FamilyChoice& family) {
  refuse_by_name(model_type);
  if (!family) refuse_unknown(model_type);
  const std::vector<std::string_view>& types = family.architecture->model_types;
  if (family.is_from_file() && !types.empty() &&
      std::ranges::find(types, model_type) == types.end())
    fail("model_type '", model_type, "' is none of the model_types of ", family.text(),
         ", which are ", join(types, ", "));
  return family;
}

std::string text_type_of(const Json& text, const Wrapper* wrapper) {
  if (wrapper && wrapper->has_one_text_type) return std::string(wrapper->text_type);
  if (auto type = optional_string(text, "model_type")) return *std::move(type);
  if (!wrapper || wrapper->text_type.empty())
    fail_missing("text_config.model_type", "the text model's type");
  return std::string(wrapper->text_type);
}

/// The text part of a wrapper; row: nullptr where its type is not known.
TextModel wrapped_model(const Json& config, const std::string& model_type, const Wrapper* row,
                        const FamilyChoice& family) {
  const Json* text = find_field(config, "text_config");
  if (!text && row && row->may_be_flat) text = &config;
  if (!text || !text->is_object())
    fail("model_type '", model_type, "' has no text_config, expected an object");
  const std::string text_type =
      text == &config ? std::string(row->text_type) : text_type_of(*text, row);
  return in_context("text_config of model_type '" + model_type + "'", [&]() -> TextModel {
    if (const Architecture* architecture = architecture_of(text_type)) {
      check_is_of(*architecture, text_type, family);
      return {architecture, text, text_type, model_type, row};
    }
    return {family.architecture, text, text_type, model_type, row, chosen_for(text_type, family)};
  });
}

}  // namespace

TextModel text_model_of(const Json& config, const FamilyChoice& family) {
  const std::string model_type = required_string(config, "model_type");
  if (const Architecture* architecture = architecture_of(model_type)) {
    check_is_of(*architecture, model_type, family);
    return {architecture, &config, model_type};
  }
  const Wrapper* row = wrapper_of(model_type);
  if (row) return wrapped_model(config, model_type, row, family);
  refuse_by_name(model_type);
  const Json* text = find_field(config, "text_config");
  if (text && text->is_object() && find_field(*text, "model_type"))
    return wrapped_model(config, model_type, nullptr, family);
  if (text) refuse_unknown(model_type);
  return {family.architecture, &config, model_type, {}, nullptr, chosen_for(model_type, family)};
}

std::vector<NamePrefix> name_prefixes(const ModelConfig& config) {
  const std::vector<NamePrefix>& own = config.architecture->prefixes;
  std::vector<TextPlace> places;
  if (config.wrapper_type.empty()) {
    places.push_back({"", TextPlace::Holds::kModel});
  } else {
    if (config.wrapper) places = config.wrapper->places;
    places.insert(places.end(), usual_places().begin(), usual_places().end());
  }
  std::vector<NamePrefix> prefixes, bare;
  for (const TextPlace& place : places) {
    const std::string prefix(place.prefix);
    if (place.holds == TextPlace::Holds::kBackbone) {
      prefixes.push_back({prefix, ""});
      continue;
    }
    for (const NamePrefix& inner : own)
      prefixes.push_back({prefix + inner.backbone, prefix + inner.head});
    bare.push_back({prefix, prefix});
  }
  prefixes.insert(prefixes.end(), bare.begin(), bare.end());
  return prefixes;
}

std::vector<std::string> outside_patterns(const std::vector<std::string>& ignored,
                                          const ModelConfig& config) {
  constexpr std::string_view kInner = "model.", kHead = "lm_head";
  std::vector<std::string> patterns;
  const auto add = [&](std::string pattern) {
    if (std::ranges::find(patterns, pattern) == patterns.end())
      patterns.push_back(std::move(pattern));
  };
  if (config.wrapper_type.empty()) return patterns;
  for (const std::string& name : ignored) {
    if (name.ends_with(kHead) && name != kHead) add(std::string(kHead));
    if (const int64_t layer = skipped_layer_of(name + ".", config); layer != kNoLayer)
      add("re:(.*\\.)?layers\\." + std::to_string(layer) + "\\..*");
    if (!is_outside_text(name + ".", config)) continue;
    const size_t begin = name.starts_with(kInner) ? kInner.size() : 0;
    add("re:(.*\\.)?" + name.substr(begin, name.find('.', begin) - begin) + "\\..*");
  }
  return patterns;
}

bool is_outside_text(std::string_view tensor, const ModelConfig& config) {
  if (config.wrapper_type.empty()) return false;
  if (config.wrapper) {
    constexpr std::string_view kInner = "model.";
    const std::string_view below =
        tensor.starts_with(kInner) ? tensor.substr(kInner.size()) : tensor;
    return std::ranges::any_of(config.wrapper->outside, [&](std::string_view beginning) {
      return tensor.starts_with(beginning) || below.starts_with(beginning);
    });
  }
  const bool is_of_head = config.head_prefix.empty() ? tensor.starts_with("lm_head")
                                                     : tensor.starts_with(config.head_prefix);
  return !is_of_head && !tensor.starts_with(config.backbone_prefix);
}

}  // namespace kvcal
