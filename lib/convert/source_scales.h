#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"
#include "quant/kv_format.h"
#include "stored/kv_scales.h"

namespace kvcal {

/// KV scales at the start of a conversion.
struct SourceScales {
  std::string format = {};  ///< name of a KvScaleNames or a StoredFormat; empty: none
  std::string path;         ///< file or folder of the scales, for messages
  std::vector<LayerKvScales> layers = {};  ///< of all layers; empty: no scales
  /// [rank][layer] of a source with one value a rank; layers holds the largest over the ranks.
  std::vector<std::vector<Scale>> ranks = {};
  KvFormat dialect = fp8::Format::kE4m3Fn;  ///< of the cache for which the scales are made
  KeyPosition keys = KeyPosition::kNotSaid;
  bool may_be_raised = false;  ///< a writer of the format raises scales below 1.0 to 1.0
  Json scheme = nullptr;       ///< kv_cache_scheme of compressed-tensors or the manifest; or null
  Json manifest = nullptr;     ///< kvcal_manifest.json beside the scales; or null
};

/// Reads the checkpoint's own scales; layers is empty where it has none. Throws Error as
/// read_all_scales does.
SourceScales read_scales_of_checkpoint(const ModelDir& model, const ModelConfig& config);

/// Reads scales from another place: a JSON file of a StoredFormat, a folder of rank files, an
/// overlay, or another checkpoint of the same model. Throws Error naming the place where it has
/// none.
SourceScales read_scales_of(const std::filesystem::path& place, const ModelConfig& config);

/// Warnings for the user of scales that look uncalibrated, or are of K before RoPE.
std::vector<std::string> warnings_of(const SourceScales& source);

}  // namespace kvcal
