#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "engines/engine_verdicts.h"
#include "engines/verify.h"
#include "family/architecture.h"
#include "inspect/checkpoint_source.h"
#include "inspect/properties.h"
#include "report/checkpoint_report.h"
#include "stored/weights.h"

namespace kvcal {

/// One tensor of a checkpoint and its use in the forward pass.
struct ListedTensor {
  std::string name;
  std::string_view role;   ///< "query_bias"; "none" where nothing reads it
  std::string_view group;  ///< of roles: "attention", "norms", "KV scales", "not read", ...
  const TensorView* tensor = nullptr;  ///< the ModelDir's
};

/// All tensors, by name.
std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config);

/// Count and bytes of each group, in the order the groups first appear.
std::vector<report::TensorKind> group_sizes(const std::vector<ListedTensor>& tensors);

/// Whether an output format can hold scales of a model.
struct FormatSupport {
  std::string format;
  std::vector<std::string> strategies =
      {};  ///< those it can hold; empty: none, for the reason below
  std::string reason = {};
  bool is_known = true;  ///< false: the reason is that values were not fetched (RemoteCheckpoint)
  std::vector<std::string> notes = {};  ///< of its writer
};

/// The programs that can make and use KV scales of a model.
struct Consumers {
  std::string calibration_refusal;  ///< empty: it can be calibrated
  std::vector<FormatSupport> formats;
  std::vector<EngineVerdict> engines;     ///< of the formats, for models of the type
  std::vector<ServedEngine> served = {};  ///< of the checkpoint's own scales; empty: it has none
};
/// A format's answer is that of convert where the checkpoint has KV scales, else that of its writer
/// for new ones. An engine's answer for scales that are there is verify's.
Consumers consumers_of(const ModelDir& model_dir, const ModelConfig& config);

/// {"calibration": {"supported", "reason"}, "formats": [{"format", "supported" (null: not known),
/// "strategies", "reason", "notes"}], "engines": [{"engine", "version", "format", "reads",
/// "note"}], "served": [{"engine", "title", "fate", "note"}]}
Json consumers_json(const Consumers& consumers);

/// A layer that attends, and what its checkpoint and manifest hold of it.
struct InspectedLayer {
  int64_t layer = 0;
  std::optional<DType> dtype = {};  ///< of its K weights
  uint64_t bytes = 0, parameters = 0;
  std::vector<Scale> k_scales = {}, v_scales = {},
                     q_scales = {};  ///< one, one a head or, of K and V, a channel; empty: none
  const Json* statistics = nullptr;  ///< the manifest's entry; nullptr: none
  int64_t kv_heads = 0;
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
  std::string
      scale_format;  ///< the name of the format that the scales have, "none", or their folder
  uint64_t parameters = 0, bytes = 0;
  Properties properties;
  std::vector<ListedTensor> tensors;
  CacheSize cache;
  Consumers consumers;
  std::vector<InspectedLayer> layers;
};

/// As `inspect --json` prints it; with_tensors: lists every tensor.
Json inspection_json(const InspectionResult& found, bool with_tensors);

/// An inspection in words and tables, as lines for a terminal: what most users look for, or, with
/// is_whole, all. has_unicode: whether the terminal shows block characters.
std::string inspection_text(const InspectionResult& found, bool has_unicode, bool is_whole);

/// Role, dtype and shape of every tensor, a line each.
std::string tensors_text(const std::vector<ListedTensor>& tensors);

}  // namespace kvcal
