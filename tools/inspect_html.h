#pragma once

#include <filesystem>
#include <string>

#include "inspection.h"
#include "plots.h"

namespace kvcal {

/// The page and plots of a checkpoint, where they are asked for. Throws Error naming manifest,
/// layer and key where the manifest is not as we write it.
void write_checkpoint_report(const Inspection& checkpoint, const ReportOptions& options);

/// The same of what `calibrate` has written from a model: of the checkpoint in it, the first of
/// several, or where it holds a file of scales alone, of the model with these.
void write_checkpoint_report(const std::filesystem::path& output, const std::string& model,
                             const ReportOptions& options);

}  // namespace kvcal
