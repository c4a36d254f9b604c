#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace kvcal {

/// Files of datasets/ that are part of the program: texts of ours, and descriptors of known public
/// data sets.
std::span<const EmbeddedText> builtin_datasets();

/// The data set of calibrations for which none is named.
inline constexpr std::string_view kDefaultDataset = "calibration";
/// That of measurements.
inline constexpr std::string_view kEvaluationDataset = "evaluation";

/// The file of datasets/ that a path names, without its extension, where no such file is there.
std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path);
/// named_dataset of a file with this extension (".yaml").
std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path,
                                          std::string_view extension);

/// All these names.
std::vector<std::string> dataset_names();

/// The data set that a file in folder names as given: a name where named_dataset has it and folder
/// no such file, else the path from folder.
std::filesystem::path dataset_seen_from(const std::filesystem::path& folder,
                                        const std::string& given);

}  // namespace kvcal
