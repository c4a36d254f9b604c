#pragma once

#include <filesystem>

#include "export/writer.h"

namespace kvcal {

/// Writes the model with a format's tensors and config.json, and its weights quantized where the
/// plan says so, into folder. first: see Writer::write.
WrittenCheckpoint write_checkpoint(const ExportInput& input, const FormatParts& parts,
                                   const std::filesystem::path& folder,
                                   const WrittenCheckpoint* first);

/// The source's config.json with the parts' keys, as text.
std::string changed_config(const ExportInput& input, const FormatParts& parts);

/// recipe.yaml where there is a recipe, vllm.yaml where layers are ignored: name → content.
std::map<std::string, std::string> recipe_and_arguments(const ExportInput& input);

}  // namespace kvcal
