#include "core/error.h"
#include "core/file.h"
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
       " file, which this build cannot read; build kvcal with Apache Arrow (docs/data.md), or "
       "convert the data set to JSON lines, for example with python -c \"import datasets; ",
       format == TableFormat::kParquet ? "datasets.Dataset.from_parquet('IN.parquet')"
                                       : "datasets.Dataset.from_file('IN.arrow')",
       ".to_json('OUT.jsonl')\"");
}
#endif

}  // namespace kvcal
