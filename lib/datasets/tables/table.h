#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/dataset_reader.h"

namespace arrow {
class Array;
}

namespace kvcal {

enum class TableFormat {
  kParquet,
  kArrow,  ///< Arrow's IPC format: streams (which `datasets` writes) and files (Feather V2)
};

/// The size of a row: bytes of its texts, and values of any kind; and how many bytes it may have.
struct RowSize {
  size_t text_bytes = 0, values = 0;
  size_t max_bytes = kDefaultRecordBytes;

  /// As a limit counts it, before anything is built: texts, and four bytes for each value.
  size_t bytes() const { return text_bytes + 4 * values; }
};

/// Some columns of a table file. Rows are read in pieces, so that memory depends neither on the
/// file's size nor on that of its row groups; going forward is cheap, going back begins a row group
/// anew. Not for several threads at once.
class Table {
 public:
  virtual ~Table() = default;
  /// Names of all columns, of those that are not read, too.
  virtual const std::vector<std::string>& columns() const = 0;
  virtual int64_t size() const = 0;
  /// The row as an object of the columns that are read, a missing value as null. size is added to.
  /// Throws Error naming the column, what was found and what was expected; the caller knows the
  /// place.
  virtual Json row(int64_t index, RowSize& size) const = 0;
};

/// Throws Error for a file that by its first and last bytes is not whole or of another format.
/// Needs no Arrow.
void check_table_file(const std::filesystem::path& path, TableFormat format);

/// Opens path for reading those of the wanted columns that it has. Throws Error with the path for a
/// file that is damaged or not of this format, and in a build without Arrow.
std::unique_ptr<Table> open_table(const std::filesystem::path& path, TableFormat format,
                                  std::span<const std::string> wanted);

/// A table's rows. Throws Error as open_table, and where none of the request's fields is a column;
/// without rows only if may_be_empty not.
std::unique_ptr<RecordSource> open_table_records(const std::filesystem::path& path,
                                                 TableFormat format, const RecordRequest& request,
                                                 bool may_be_empty = false);

/// One value of an array as JSON would have it: texts, numbers, lists, structs, dictionary-encoded
/// values as what they stand for, arrow.json parsed, points in time and decimals as text. A
/// struct's fields that are null are left out, since a table has every field in every row and a
/// template asks whether a message has one; `content` beside `tool_calls` stays, as chat records
/// have it. size is added to; above its limit it throws Error, as it does for types that JSON has
/// not and for text that is not UTF-8. The array must be valid (ValidateFull).
Json arrow_value(const arrow::Array& array, int64_t index, RowSize& size);

}  // namespace kvcal
