#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "datasets/dataset_reader.h"
#include "datasets/dataset_record.h"
#include "datasets/tables/table.h"

namespace kvcal {
namespace {

/// Rows read ahead are kept up to this size; the others are read when asked for.
constexpr size_t kMostKeptBytes = size_t{256} << 20;
/// Rough size of a value beside its text.
constexpr size_t kValueBytes = 32;

class TableRecords : public RecordSource {
 public:
  TableRecords(fs::path path, std::unique_ptr<Table> table)
      : path_(std::move(path)), table_(std::move(table)) {}

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
      RowSize own;
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

std::unique_ptr<RecordSource> open_table_records(const fs::path& path, TableFormat format,
                                                 std::span<const std::string> fields,
                                                 bool may_be_empty) {
  auto table = open_table(path, format, fields);
  in_context(path.string(), [&] { check_fields(table->columns(), fields); });
  if (table->size() == 0 && !may_be_empty)
    fail(path.string(), ": holds no record, the table has no row");
  return std::make_unique<TableRecords>(path, std::move(table));
}

}  // namespace kvcal
