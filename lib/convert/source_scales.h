#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"
#include "quant/fp8.h"
#include "stored/kv_scales.h"

namespace kvcal {

/// The KV scales that a conversion begins with.
struct SourceScales {
  std::string form;  ///< name of a KvForm, or of the StoredForm of ranks; empty: none
  std::string path;  ///< the file or folder they are from, for messages
  std::vector<LayerKvScales> layers;  ///< of all layers; empty: there are none
  /// [rank][layer] of a source that has one value a rank; layers has the largest of all ranks.
  std::vector<std::vector<Scale>> ranks = {};
  fp8::Format format = fp8::Format::kE4m3Fn;
  KeyPosition keys = KeyPosition::kNotSaid;
  bool may_be_raised = false;  ///< a writer of the form raises scales below 1.0 to that
  Json scheme = nullptr;       ///< kv_cache_scheme of compressed-tensors or the manifest; or null
  Json manifest = nullptr;     ///< kvcal_manifest.json beside them; or null
};

/// Those of the checkpoint itself; no layers where it has none. Throws Error as read_all_scales.
SourceScales read_scales_of_checkpoint(const ModelDir& model, const ModelConfig& config);

/// Those of another place: kv_cache_scales.json, a folder of rank files, an overlay, or another
/// checkpoint of the same model. Throws Error naming it where it has none.
SourceScales read_scales_of(const std::filesystem::path& place, const ModelConfig& config);

}  // namespace kvcal
