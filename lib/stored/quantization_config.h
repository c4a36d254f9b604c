#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"

namespace kvcal {

struct StoredForm;

/// ModelOpt's file beside config.json.
inline constexpr std::string_view kModelOptFileName = "hf_quant_config.json";

/// The quantization of a checkpoint as config.json, or the form's own file, describes it.
struct QuantizationConfig {
  const StoredForm* form = nullptr;  ///< nullptr: there is no config
  Json json = {};                    ///< the object with the form's keys
  bool is_nested = false;            ///< with the keys of the form's own file, wherever they stand
  std::string where = {};            ///< file and key, for messages
};

/// Without a form where there is none. Throws Error for a quant_method that is not read, naming
/// those that are.
QuantizationConfig read_quantization_config(const ModelDir& model_dir);

/// The form whose own file lies in folder; nullptr: none.
const StoredForm* form_beside(const std::filesystem::path& folder);

/// Throws Error naming a key of object that is not among known.
void check_keys(const Json& object, std::span<const std::string_view> known);

/// For forms that no schema lists the keys of: throws Error where an unknown key looks like a known
/// one.
void check_spelling(const Json& object, std::span<const std::string_view> known);

}  // namespace kvcal
