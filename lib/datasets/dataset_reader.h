#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "core/registry.h"
#include "datasets/dataset.h"

namespace kvcal {

/// Opens one kind of data set. Only descriptors take another local copy; they and folders a split.
using OpenDataset = std::unique_ptr<Dataset>(const fs::path& path,
                                             const DatasetOverrides& overrides);

/// Every reader by the name of its file in lib/datasets/readers/.
const Registry<OpenDataset*>& dataset_readers();

/// No record may be longer, in bytes.
inline constexpr size_t kMaxRecordBytes = 100'000'000;

/// Offset of the first byte that is not part of valid UTF-8, if any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Name of the reader for path: by what it is (a folder, a pattern, a table), by extension, else by
/// content.
std::string_view reader_for(const fs::path& path);

/// True if the first line is a JSON object of its own and another one follows.
bool is_json_lines(std::string_view text);

}  // namespace kvcal
