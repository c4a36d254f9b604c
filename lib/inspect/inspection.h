#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "inspect/consumers.h"
#include "inspect/hollow_checkpoint.h"
#include "inspect/properties.h"
#include "inspect/tensor_list.h"

namespace kvcal {

/// A layer that attends, and what its checkpoint and manifest hold of it.
struct InspectedLayer {
  int64_t layer = 0;
  std::optional<DType> dtype = {};  ///< of its K weights
  uint64_t bytes = 0, parameters = 0;
  std::vector<Scale> k_scales = {}, v_scales = {},
                     q_scales = {};  ///< one, or one a head; empty: none
  const Json* statistics = nullptr;  ///< the manifest's entry; nullptr: none
};

/// Everything that is known about a checkpoint without running it.
struct InspectionResult {
  /// Throws Error where the folder is no checkpoint that we know. scales_folder: of a checkpoint
  /// without scales, the folder with the file that holds them, and with their manifest; empty: the
  /// checkpoint's own. family: of a model_type that is not known.
  explicit InspectionResult(const std::string& checkpoint,
                            const std::filesystem::path& scales_folder = {},
                            const FamilyChoice& family = {});
  InspectionResult(const InspectionResult&) = delete;
  InspectionResult& operator=(const InspectionResult&) = delete;

  std::string path;  ///< as it was given
  /// Stands for the weights where path is a config.json, or a folder of one without weights.
  std::unique_ptr<HollowCheckpoint> hollow;
  ModelDir model_dir;  ///< owns the bytes of tensors
  ModelConfig config;
  CheckpointQuantization quantization;
  Json manifest;  ///< owns the layers' statistics; null where there is none
  bool has_scales_elsewhere = false;
  std::string scale_form;  ///< the name of the form that the scales have, "none", or their folder
  uint64_t parameters = 0, bytes = 0;
  Properties properties;
  std::vector<ListedTensor> tensors;
  CacheSize cache;
  Consumers consumers;
  std::vector<InspectedLayer> layers;
};

/// See InspectionResult's constructor.
InspectionResult inspect(const std::string& checkpoint,
                         const std::filesystem::path& scales_folder = {},
                         const FamilyChoice& family = {});

/// As `inspect --json` prints it; with_tensors: lists every tensor.
Json inspection_json(const InspectionResult& found, bool with_tensors);

}  // namespace kvcal
