#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "core/registry.h"
#include "text/dataset.h"

namespace kvcal {

/// Opens one kind of data set file. Only descriptors take overrides.
using OpenDataset = std::unique_ptr<Dataset>(const fs::path& path,
                                             const DatasetOverrides& overrides);

/// Every reader by the name of its file in lib/text/datasets/.
const Registry<OpenDataset*>& dataset_readers();

/// No record may be longer, in bytes.
inline constexpr size_t kMaxRecordBytes = 100'000'000;

/// The file's text without a byte order mark. Throws Error for what is no UTF-8 text by its first
/// bytes: Parquet, compressed files, UTF-16. Lives as long as the file.
std::string_view text_of(const MappedFile& file);

/// Offset of the first byte that is not part of valid UTF-8, if any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Name of the reader for path, by extension, else by content.
std::string_view reader_for(const fs::path& path);

/// True if the first line is a JSON object of its own and another one follows.
bool is_json_lines(std::string_view text);

}  // namespace kvcal
