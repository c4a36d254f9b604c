#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"

namespace kvcal {

/// Whose form a checkpoint's quantization config has.
enum class QuantForm : uint8_t { kNone, kCompressedTensors, kFp8, kModelOpt, kQuark };

/// What config.json, or ModelOpt's hf_quant_config.json, says of quantization.
struct QuantizationConfig {
  QuantForm form = QuantForm::kNone;
  Json json = {};          ///< the object with the form's keys
  bool is_nested = false;  ///< ModelOpt's keys of hf_quant_config.json, wherever they stand
  std::string where = {};  ///< file and key, for messages
};

/// kNone where there is none. Throws Error for a quant_method that is not read, naming those that
/// are.
QuantizationConfig read_quantization_config(const ModelDir& model_dir);

/// Throws Error naming a key of object that is not among known.
void check_keys(const Json& object, std::span<const std::string_view> known);

/// For forms that no schema lists the keys of: throws Error where an unknown key looks like a known
/// one.
void check_spelling(const Json& object, std::span<const std::string_view> known);

}  // namespace kvcal
