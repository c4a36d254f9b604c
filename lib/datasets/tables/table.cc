#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "datasets/dataset_reader.h"
#include "datasets/tables/table.h"

namespace kvcal {
namespace {

constexpr std::string_view kParquetMark = "PAR1", kEncryptedMark = "PARE", kArrowMark = "ARROW1";

void check_parquet(std::string_view content) {
  if (content.starts_with(kEncryptedMark) || content.ends_with(kEncryptedMark))
    fail("is an encrypted Parquet file, which is not read");
  if (!content.starts_with(kParquetMark))
    fail("is no Parquet file: it does not begin with '", kParquetMark, "'");
  // The length of the footer stands before the mark at the end.
  if (content.size() < 2 * kParquetMark.size() + sizeof(uint32_t) ||
      !content.ends_with(kParquetMark))
    fail("the Parquet file is cut short: it does not end with '", kParquetMark, "'");
}

void check_arrow(std::string_view content) {
  // Streams of before 2019 lack the mark and are not taken.
  if (!content.starts_with(kArrowMark) && !content.starts_with("\xff\xff\xff\xff"))
    fail("is no Arrow file: it begins neither with '", kArrowMark, "' nor as a stream does");
  if (content.starts_with(kArrowMark) && !content.ends_with(kArrowMark))
    fail("the Arrow file is cut short: it does not end with '", kArrowMark, "'");
}

/// Rows read ahead are kept up to this size; the others are read when asked for.
constexpr size_t kMostKeptBytes = size_t{64} << 20;
/// Rough size of a value beside its text.
constexpr size_t kValueBytes = 32;

class TableRecords : public RecordSource {
 public:
  TableRecords(fs::path path, std::unique_ptr<Table> table, size_t max_record_bytes)
      : path_(std::move(path)), table_(std::move(table)), max_record_bytes_(max_record_bytes) {}

  int64_t size() const override { return table_->size(); }
  Json read(int64_t index) const override {
    if (const auto kept = kept_.find(index); kept != kept_.end()) {
      Json row = std::move(kept->second);
      kept_.erase(kept);
      return row;
    }
    RowSize ignored;
    return read_row(index, ignored);
  }
  std::string place(int64_t index) const override {
    return path_.string() + ": row " + std::to_string(index);
  }
  /// Reads them in the file's order, so that a shuffled choice of rows costs one pass.
  void will_read(std::span<const int64_t> indices) const override {
    std::vector<int64_t> order(indices.begin(), indices.end());
    std::ranges::sort(order);
    kept_.clear();
    RowSize all;
    for (const int64_t index : order) {
      throw_if_interrupted();
      if (all.text_bytes + all.values * kValueBytes > kMostKeptBytes) return;
      kept_.emplace(index, read_row(index, all));
    }
  }
  std::string sha256() const override { return sha256_of_file(path_); }

 private:
  Json read_row(int64_t index, RowSize& size) const {
    return in_context(place(index), [&] {
      RowSize own{.max_bytes = max_record_bytes_};
      Json row = table_->row(index, own);
      // As list of what is there for messages; null counts as absent.
      for (const std::string& name : table_->columns())
        if (!row.contains(name)) row[name] = nullptr;
      size.text_bytes += own.text_bytes;
      size.values += own.values;
      return row;
    });
  }

  fs::path path_;
  std::unique_ptr<Table> table_;
  size_t max_record_bytes_;
  mutable std::unordered_map<int64_t, Json> kept_;
};

/// Throws Error in the words in which a record without any of the fields is refused.
void check_fields(const std::vector<std::string>& columns, std::span<const std::string> fields) {
  for (const std::string& field : fields)
    if (std::ranges::find(columns, field) != columns.end()) return;
  Json names = Json::object();
  for (const std::string& name : columns) names[name] = nullptr;
  if (std::ranges::equal(fields, record_keys())) to_record(names, "");
  fail_absent(names, fields.front());
}

}  // namespace

void check_table_file(const fs::path& path, TableFormat format) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  in_context(path.string(), [&] {
    if (content.empty()) fail("is empty");
    format == TableFormat::kParquet ? check_parquet(content) : check_arrow(content);
  });
}

#if !KVCAL_HAS_ARROW
std::unique_ptr<Table> open_table(const fs::path& path, TableFormat format,
                                  std::span<const std::string>) {
  check_table_file(path, format);
  fail(path.string(), ": is ", format == TableFormat::kParquet ? "a Parquet" : "an Arrow",
       " file, which this build cannot read; make JSON lines of it with pyarrow alone: pip install "
       "pyarrow, then "
       "python -c \"import json, pyarrow.",
       format == TableFormat::kParquet ? "parquet as p; t = p.read_table('IN.parquet')"
                                       : "ipc as p; t = p.open_stream('IN.arrow').read_all()",
       "; open('OUT.jsonl', 'w').writelines(json.dumps(r, default=str) + chr(10) for r in "
       "t.to_pylist())\"; or build kvcal with Apache Arrow (docs/data.md)");
}
#endif

std::unique_ptr<RecordSource> open_table_records(const fs::path& path, TableFormat format,
                                                 const RecordRequest& request, bool may_be_empty) {
  auto table = open_table(path, format, request.fields);
  in_context(path.string(), [&] { check_fields(table->columns(), request.fields); });
  if (table->size() == 0 && !may_be_empty)
    fail(path.string(), ": holds no record, the table has no row");
  return std::make_unique<TableRecords>(path, std::move(table), request.max_record_bytes);
}

}  // namespace kvcal
