#pragma once

#include <filesystem>

#include "core/file.h"
#include "core/json.h"
#include "family/family_choice.h"

namespace kvcal {

/// A checkpoint of a config.json alone, in a temporary folder that goes with it: the tensors that
/// the family expects, whose bytes are holes in a file. It takes no space on disks with sparse
/// files, and answers every question but those about values. Quantization that config.json
/// describes is left out.
class HollowCheckpoint {
 public:
  /// Throws Error as parse_model_config does, naming the file.
  HollowCheckpoint(const std::filesystem::path& config_file, const FamilyChoice& family);

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  void write(const Json& given, const FamilyChoice& family) const;

  AtomicDirectory folder_;  ///< never committed
};

/// The config.json that given stands for without weights: a file, or that of a folder that has no
/// file of weights; empty: given is something else.
std::filesystem::path lone_config(const std::filesystem::path& given);

}  // namespace kvcal
