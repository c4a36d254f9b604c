#pragma once

#include <filesystem>
#include <string>

#include "export/writer.h"

namespace kvcal {

/// Name of the file that marks a folder as an overlay.
inline constexpr std::string_view kOverlayName = "kvcal_overlay.json";

/// Writes an overlay: the files that a format adds to a checkpoint, without the checkpoint. These
/// are the scales as kScalesFileName, config.json, the index of a sharded model, the format's own
/// files, and kOverlayName, which names the model and the format. Copied into the folder of a
/// sharded checkpoint they give the result of write(); `kvcal apply` does it for any checkpoint.
/// Throws Error where the plan quantizes weights: an overlay holds none.
void write_overlay(const ExportInput& input, const FormatParts& parts, const std::string& format,
                   const std::filesystem::path& folder);

/// Content of kOverlayName.
struct Overlay {
  std::string format;  ///< as --format named it
  std::string model_type;
  int64_t num_hidden_layers = 0;
  Json config;  ///< keys of config.json that the format set
};

/// Throws Error naming file and key.
Overlay read_overlay(const std::filesystem::path& folder);

}  // namespace kvcal
