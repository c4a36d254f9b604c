#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "model/fp8_checkpoint.h"
#include "model/model_config.h"
#include "model_facts.h"

namespace kvcal {

/// What `inspect` found out. Borrows from the caller.
struct InspectedCheckpoint {
  const Json& report;    ///< as --json prints it
  const Json& manifest;  ///< null where there is none
  const std::vector<Fact>& facts;
  const ModelDir& model_dir;
  const ModelConfig& config;
  const CheckpointQuantization& quantization;
};

/// The page of `inspect --html`. Throws Error naming manifest, layer and key where the manifest is
/// not as we write it.
std::string inspect_page(const InspectedCheckpoint& checkpoint);

}  // namespace kvcal
