#pragma once

#include <string_view>

#include "core/json.h"

namespace kvcal {

/// Whether a key of config.json changes no value that the text model computes, in any family:
/// names of classes, special tokens, options of training, of sampling and of the library. Source:
/// transformers 5.23, `PreTrainedConfig` and `GenerationConfig`, and the configs of its models.
bool is_neutral_key(std::string_view key, const Json& value);

}  // namespace kvcal
