#pragma once

#include <string_view>

#include "core/json.h"
#include "stored/stored_format.h"

namespace kvcal {

/// The names that our Quark checkpoints have for the KV scales of models of a type. Quark's own are
/// those of the outputs of k_proj and v_proj; other types get names at which fewer engines stop.
/// has_weights: the Linears are quantized.
const KvScaleNames& quark_names_of_type(std::string_view model_type, bool has_weights);

/// The same of a config.json.
const KvScaleNames& quark_names(const Json& config, bool has_weights);

}  // namespace kvcal
