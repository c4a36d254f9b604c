#include "datasets/tables/table.h"

#if KVCAL_HAS_ARROW

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/json_append.h"

namespace kvcal {
namespace {

/// The most bytes that decoding may take; a file that declares more is refused before it is given
/// memory. A stream's batches stay, so it gets more.
constexpr int64_t kMostDecodedBytes = int64_t{512} << 20, kMostStreamBytes = int64_t{2} << 30;
/// Rows that are decoded together.
constexpr int64_t kPieceRows = 64;
/// The file's pages are given back when so many pieces were read.
constexpr int64_t kDropEvery = 64;

/// Throws with the kind of damage, without Arrow's own place names.
[[noreturn]] void fail_status(const arrow::Status& status) {
  if (status.IsOutOfMemory())
    fail("decoding it takes more than the limit of ", kMostDecodedBytes, " bytes, ",
         kMostStreamBytes, " for a stream; the file may be damaged, or its rows are too large");
  fail("cannot be read: ", status.message());
}
void check(const arrow::Status& status) {
  if (!status.ok()) fail_status(status);
}
template <class Value>
Value take(arrow::Result<Value> result) {
  if (!result.ok()) fail_status(result.status());
  return std::move(result).MoveValueUnsafe();
}

/// Runs body; what Arrow throws becomes an Error.
template <class Body>
decltype(auto) guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const parquet::ParquetStatusException& error) {
    fail_status(error.status());
  } catch (const std::bad_alloc&) {
    fail("decoding it takes more memory than there is");
  } catch (const std::exception& error) {
    fail("cannot be read: ", error.what());
  }
}

/// Some rows of the table.
struct Piece {
  int64_t begin = 0;
  std::shared_ptr<arrow::RecordBatch> batch;
  bool holds(int64_t index) const {
    return batch && index >= begin && index - begin < batch->num_rows();
  }
};

/// Lays the columns of pieces out as JSON; a format's reader brings the pieces.
class ArrowTable : public Table {
 public:
  explicit ArrowTable(const fs::path& path, int64_t most_bytes = kMostDecodedBytes)
      : file_(path), pool_(arrow::system_memory_pool(), most_bytes) {}

  const std::vector<std::string>& columns() const override { return columns_; }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Json row(int64_t index, RowSize& size) const override {
    return guarded([&] {
      if (!piece_.holds(index)) {
        if (++pieces_ % kDropEvery == 0) file_.drop(file_.bytes());
        bring(index, piece_);
        KVCAL_CHECK(piece_.holds(index));
        if (const auto status = piece_.batch->ValidateFull(); !status.ok())
          fail("rows ", piece_.begin, " to ", piece_.begin + piece_.batch->num_rows() - 1,
               " are damaged: ", status.message());
      }
      Json object = Json::object();
      for (int i = 0; i < piece_.batch->num_columns(); ++i) {
        const std::string& name = piece_.batch->column_name(i);
        in_context(name, [&] {
          append_field(object, name,
                       arrow_value(*piece_.batch->column(i), index - piece_.begin, size));
        });
      }
      return object;
    });
  }

 protected:
  /// Puts the piece that holds index in place of piece, which holds another one or nothing.
  virtual void bring(int64_t index, Piece& piece) const = 0;

  std::shared_ptr<arrow::io::BufferReader> input() const {
    const auto bytes = file_.bytes();
    return std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(
        reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int64_t>(bytes.size())));
  }
  /// Keeps the names of the columns; the positions of those that are wanted. Throws Error where
  /// one of those is there twice.
  template <class NameAt>
  std::vector<int> choose(int count, const NameAt& name_at, std::span<const std::string> wanted) {
    std::vector<int> chosen;
    for (int i = 0; i < count; ++i) {
      const std::string& name = columns_.emplace_back(name_at(i));
      if (std::ranges::find(wanted, name) == wanted.end()) continue;
      if (std::ranges::count(columns_, name) > 1) fail("column '", name, "' appears twice");
      chosen.push_back(i);
    }
    return chosen;
  }

  /// Counts the rows of the next group, a row group or a batch.
  void add_rows(std::string_view group, int64_t rows) {
    if (rows < 0 || rows > std::numeric_limits<int64_t>::max() - size())
      fail(group, " ", ends_.size(), " has ", counted(rows, "row"));
    ends_.push_back(size() + rows);
  }
  /// The group that holds the row, and its first row.
  size_t group_of(int64_t row) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
  }
  int64_t begin_of(size_t group) const { return group == 0 ? 0 : ends_[group - 1]; }

  MappedFile file_;
  mutable arrow::CappedMemoryPool pool_;
  std::vector<std::string> columns_;
  std::vector<int64_t> ends_;  ///< of the groups

 private:
  mutable Piece piece_;
  mutable int64_t pieces_ = 0;
};

class ParquetTable : public ArrowTable {
 public:
  ParquetTable(const fs::path& path, std::span<const std::string> wanted) : ArrowTable(path) {
    parquet::ReaderProperties properties(&pool_);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_batch_size(kPieceRows);
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_arrow_extensions_enabled(true);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(input(), properties));
    // A text of a dictionary that many rows have is there once, not once for each row.
    const parquet::SchemaDescriptor& schema = *builder.raw_reader()->metadata()->schema();
    for (int leaf = 0; leaf < schema.num_columns(); ++leaf)
      if (schema.Column(leaf)->physical_type() == parquet::Type::BYTE_ARRAY &&
          schema.Column(leaf)->logical_type()->is_string() &&
          schema.Column(leaf)->max_repetition_level() == 0)
        arrow_properties.set_read_dictionary(leaf, true);
    builder.memory_pool(&pool_)->properties(arrow_properties);
    reader_ = take(builder.Build());
    choose_leaves(wanted);
    count_rows();
  }

 private:
  /// Pieces of a row group come one after the other; what lies before the current one is reached
  /// by beginning the row group again.
  void bring(int64_t index, Piece& piece) const override {
    const size_t group = group_of(index);
    if (!batches_ || group != group_ || index < next_) {
      batches_.reset();
      piece.batch.reset();
      batches_ = take(reader_->GetRecordBatchReader({static_cast<int>(group)}, leaves_));
      group_ = group;
      next_ = begin_of(group);
    }
    do {
      throw_if_interrupted();
      piece.begin = next_;
      piece.batch = nullptr;
      check(batches_->ReadNext(&piece.batch));
      if (!piece.batch)
        fail("row group ", group, " ends after row ", next_ - 1, ", expected rows up to ",
             ends_[group] - 1);
      next_ += piece.batch->num_rows();
    } while (!piece.holds(index));
  }

  void choose_leaves(std::span<const std::string> wanted) {
    const parquet::SchemaDescriptor& schema = *reader_->parquet_reader()->metadata()->schema();
    const parquet::schema::GroupNode& root = *schema.group_node();
    const std::vector<int> chosen = choose(
        root.field_count(), [&](int i) { return root.field(i)->name(); }, wanted);
    for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
      const int column = root.FieldIndex(*schema.GetColumnRoot(leaf));
      if (std::ranges::find(chosen, column) != chosen.end()) leaves_.push_back(leaf);
    }
  }

  void count_rows() {
    const parquet::FileMetaData& metadata = *reader_->parquet_reader()->metadata();
    for (int group = 0; group < metadata.num_row_groups(); ++group)
      add_rows("row group", metadata.RowGroup(group)->num_rows());
    if (size() != metadata.num_rows())
      fail("says that it has ", counted(metadata.num_rows(), "row"), ", its row groups have ",
           size());
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> leaves_;
  mutable std::unique_ptr<arrow::RecordBatchReader> batches_;
  mutable size_t group_ = 0;
  mutable int64_t next_ = 0;  ///< the row that batches_ gives next
};

/// Arrow's IPC format. Batches that are not compressed lie in the mapped file and are not copied.
class IpcTable : public ArrowTable {
 public:
  IpcTable(const fs::path& path, std::span<const std::string> wanted)
      : ArrowTable(path, kMostStreamBytes) {
    const auto bytes = file_.bytes();
    constexpr std::string_view kMagic = "ARROW1";
    is_file_ = bytes.size() > kMagic.size() &&
               std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
    const auto schema = is_file_ ? file_reader({})->schema() : stream_reader(input(), {})->schema();
    chosen_ = choose(
        schema->num_fields(), [&](int i) { return schema->field(i)->name(); }, wanted);
    if (chosen_.empty()) return;
    is_file_ ? open_file() : open_stream();
  }

 private:
  void bring(int64_t index, Piece& piece) const override {
    const size_t at = group_of(index);
    piece.begin = begin_of(at);
    piece.batch.reset();
    piece.batch =
        is_file_ ? take(file_batches_->ReadRecordBatch(static_cast<int>(at))) : stream_batches_[at];
  }

  arrow::ipc::IpcReadOptions options(std::vector<int> fields) const {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = &pool_;
    options.included_fields = std::move(fields);
    options.use_threads = false;
    options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
    return options;
  }
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_reader(std::vector<int> fields) const {
    return take(arrow::ipc::RecordBatchFileReader::Open(input(), options(std::move(fields))));
  }
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_reader(
      const std::shared_ptr<arrow::io::BufferReader>& stream, std::vector<int> fields) const {
    return take(arrow::ipc::RecordBatchStreamReader::Open(stream, options(std::move(fields))));
  }

  void open_file() {
    file_batches_ = file_reader(chosen_);
    for (int i = 0; i < file_batches_->num_record_batches(); ++i)
      add_batch(*take(file_batches_->ReadRecordBatch(i)));
  }

  /// A stream can only be read forward, so the batches stay; compressed ones up to the pool's
  /// limit.
  void open_stream() {
    const auto stream = input();
    const auto reader = stream_reader(stream, chosen_);
    while (true) {
      std::shared_ptr<arrow::RecordBatch> batch;
      check(reader->ReadNext(&batch));
      if (!batch) break;
      add_batch(*batch);
      stream_batches_.push_back(std::move(batch));
    }
    check_end(take(stream->Tell()));
  }

  void add_batch(const arrow::RecordBatch& batch) {
    throw_if_interrupted();
    check(batch.Validate());
    add_rows("batch", batch.num_rows());
  }

  /// Arrow takes a stream that stops between two batches for complete, a data set does not.
  void check_end(int64_t end) const {
    constexpr std::string_view kEnd("\xff\xff\xff\xff\0\0\0\0", 8);
    const auto bytes = file_.bytes();
    const auto at = static_cast<size_t>(end);
    if (at < kEnd.size() || at > bytes.size() ||
        std::memcmp(bytes.data() + at - kEnd.size(), kEnd.data(), kEnd.size()) != 0)
      fail("the stream ends without its end mark after ", counted(size(), "row"),
           ", it is cut short");
    if (at != bytes.size()) fail(bytes.size() - at, " bytes follow the end of the stream");
  }

  bool is_file_ = false;
  std::vector<int> chosen_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_batches_;
  std::vector<std::shared_ptr<arrow::RecordBatch>> stream_batches_;
};

}  // namespace

std::unique_ptr<Table> open_table(const fs::path& path, TableFormat format,
                                  std::span<const std::string> wanted) {
  check_table_file(path, format);
  return in_context(path.string(), [&] {
    return guarded([&]() -> std::unique_ptr<Table> {
      if (format == TableFormat::kParquet) return std::make_unique<ParquetTable>(path, wanted);
      return std::make_unique<IpcTable>(path, wanted);
    });
  });
}

}  // namespace kvcal

#endif
