#pragma once

#include <filesystem>
#include <string>

#include "inspect/inspection.h"
#include "report/checkpoint_report.h"

namespace kvcal {

/// The values of a checkpoint's page. Throws Error naming manifest, layer and key where the
/// manifest is not as we write it.
report::CheckpointReport page_values(const InspectionResult& checkpoint,
                                     const std::string& version);

/// The same for the output of a calibration of a model: of the checkpoint in it, the first of
/// several, or where it holds a file of scales alone, of the model with these. place: where output,
/// which is not visible yet, will be.
report::CheckpointReport page_values(const std::filesystem::path& output,
                                     const std::filesystem::path& place, const std::string& model,
                                     const std::string& version, const FamilyChoice& family = {});

}  // namespace kvcal
