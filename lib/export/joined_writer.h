#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// "compressed-tensors+tgi" → its names, as kWriters has them. Throws Error for one that is
/// unknown, empty or given twice.
std::vector<std::string> joined_names(std::string_view format);

/// The same in one word: what an output's folder is called.
std::string format_name(std::string_view format);

/// Whether one of the formats joined in a name has a property: any_has(name,
/// &OutputFormat::holds_queries).
bool any_has(std::string_view format, bool OutputFormat::*property);

/// The writer of a format, or of several joined by '+', which puts all of them into one folder.
/// Throws Error for a name that is unknown or given twice; check() for formats that cannot share a
/// folder: both have a quantization_config (ModelOpt beside another keeps hf_quant_config.json
/// alone), or FP8 weights have other scales in each.
std::unique_ptr<Writer> make_writer(std::string_view format);

}  // namespace kvcal
