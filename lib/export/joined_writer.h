#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// Splits "compressed-tensors+tgi" into names of kWriters. Throws Error for a name that is unknown,
/// empty or given twice.
std::vector<std::string> joined_names(std::string_view format);

/// Name of a format as one word: the name of its output folder.
std::string format_name(std::string_view format);

/// Whether one of the formats joined in a name has a property: any_has(name,
/// &OutputFormat::holds_queries).
bool any_has(std::string_view format, bool OutputFormat::*property);

/// Makes the writer of a format, or of several joined by '+', which puts all of them into one
/// folder. Throws Error for a name that is unknown or given twice. check() throws for formats that
/// cannot share a folder: both have a quantization_config (ModelOpt beside another keeps only
/// hf_quant_config.json), or they store FP8 weights with different scales.
std::unique_ptr<Writer> make_writer(std::string_view format);

}  // namespace kvcal
