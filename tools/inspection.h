#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "family/model_config.h"
#include "model_facts.h"
#include "stored/fp8_checkpoint.h"
#include "tensor_list.h"

namespace kvcal {

/// A checkpoint and what is found out about it without running it.
struct Inspection {
  /// Throws Error where the folder is no checkpoint that we know.
  explicit Inspection(const std::string& checkpoint);
  /// A checkpoint without scales: they lie in a file of that folder, with their manifest.
  Inspection(const std::string& checkpoint, const std::filesystem::path& scales_folder);
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  std::vector<ListedTensor> tensors() const { return list_tensors(model_dir, config); }

  ModelDir model_dir;
  ModelConfig config;
  CheckpointQuantization quantization;
  std::vector<Fact> facts;
  Json manifest;  ///< null where there is none
  Json report;    ///< as `inspect --json` prints it
  bool has_scales_elsewhere = false;

 private:
  Inspection(const std::string& checkpoint, const std::filesystem::path& scales_folder,
             bool is_elsewhere);
};

/// What the manifest holds of a layer; nullptr for nothing.
const Json* find_layer(const Json& manifest, int64_t layer);

}  // namespace kvcal
