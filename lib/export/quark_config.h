#pragma once

#include "core/json.h"
#include "stored/kv_forms.h"

namespace kvcal {

/// quantization_config in AMD Quark's words, without outputs of K and V. global: of all Linears but
/// those that exclude names. Source: AMD Quark 0.13's export.
Json quark_config(Json global, Json exclude);

/// The names that Quark's form has for the KV scales of a model. config: config.json; has_weights:
/// its Linears are quantized.
const KvForm& quark_names(const Json& config, bool has_weights);

}  // namespace kvcal
