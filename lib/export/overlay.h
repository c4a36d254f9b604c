#pragma once

#include <filesystem>
#include <string>

#include "export/writer.h"

namespace kvcal {

/// The file that makes a folder an overlay.
inline constexpr std::string_view kOverlayName = "kvcal_overlay.json";

/// What a format adds to a checkpoint, without the checkpoint: the scales as kScalesFileName, its
/// config.json, the index of a sharded one, the format's files, and kOverlayName, which says of
/// what model and in which format. Dropped into a sharded checkpoint's folder they make what
/// write() would; `kvcal apply` does it for any. Throws Error where the plan quantizes weights,
/// which an overlay does not hold.
void write_overlay(const ExportInput& input, const FormatParts& parts, const std::string& format,
                   const std::filesystem::path& folder);

/// What kOverlayName says.
struct Overlay {
  std::string format;  ///< as --format named it
  std::string model_type;
  int64_t num_hidden_layers = 0;
  Json config;  ///< keys of config.json that the format set
};

/// Throws Error naming file and key.
Overlay read_overlay(const std::filesystem::path& folder);

}  // namespace kvcal
