#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// The fate of KV scales in an engine. kNotKnown: it was not run with such a model.
enum class Fate : uint8_t { kLoaded, kNotKnown, kLost, kRefused };
std::string_view name_of(Fate fate);

/// An answer of an engine for the KV scales of an output.
struct ServedEngine {
  std::string name;   ///< as asked for: "vllm", "vllm@0.33"
  std::string title;  ///< "vLLM 0.32"
  Fate fate = Fate::kLost;
  /// kLoaded, kNotKnown: the command that serves the folder, or the settings that it needs; else
  /// the reason, and a format that it reads.
  std::string note;
  std::string note_inside = {};  ///< the same of a command that runs in the folder
  bool is_used = false;          ///< by the rules, whether the engine was run or not
};

/// A checkpoint as an engine is given it.
struct ServedFolder {
  std::filesystem::path checkpoint;
  std::filesystem::path scales = {};  ///< a kv_cache_scales.json; empty: that of the folder, if any
  std::filesystem::path shown = {};   ///< name of checkpoint in commands; empty: its path
  std::vector<ServedEngine> known = {};  ///< answers for this folder that are not asked for again
};

/// Each engine's answer, as verify_checkpoint has it: for the first of the folders whose scales
/// it uses, with the arguments that it needs; where it uses none, for the first. engines: names as
/// choose_engine takes them. Throws Error as verify_checkpoint.
std::vector<ServedEngine> served_engines(const std::vector<ServedFolder>& folders,
                                         const ModelConfig& config,
                                         const std::vector<std::string>& engines, int64_t tp_size);

}  // namespace kvcal
