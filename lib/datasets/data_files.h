#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace kvcal {

/// Files that are one data set, in the order in which their records are counted.
struct FileSet {
  std::filesystem::path folder;  ///< their names are seen from here
  std::vector<std::filesystem::path> files;

  /// One file: its own SHA-256. Several: SHA-256 over "<name>\0<SHA-256>\n" of each in their order.
  std::string sha256() const;
};

/// Whether path is a pattern of file names (`data/*.jsonl`) and no file of that name is there.
bool is_pattern(const std::filesystem::path& path);
/// Whether path is such a pattern, and files match it.
bool has_files(const std::filesystem::path& path);
/// Whether a folder is what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` writes.
bool is_saved_dataset(const std::filesystem::path& folder);

/// The data files of a folder or a pattern, sorted by name byte by byte. Hidden files and what goes
/// with data sets (README, LICENSE) are left out. Of a folder with files of several splits
/// ("train-00000-of-00002.parquet", "test.jsonl") those of split. Throws Error naming a file that
/// is of no known kind, a folder that a pattern matches or that lies among the files, a missing
/// shard, splits among which none was chosen, and where there is nothing.
FileSet find_data_files(const std::filesystem::path& path, const std::optional<std::string>& split);

/// The files of a saved data set; of one with splits, those of split, or of the only one. Throws
/// Error naming what is missing or not understood.
FileSet find_saved_files(const std::filesystem::path& folder,
                         const std::optional<std::string>& split);

/// The ways in which a text file may be packed.
enum class Packing { kNone, kGzip, kZstd };

/// The packing that the file's first bytes show.
Packing packing_of(std::string_view first_bytes);
/// Throws Error where the name's ending, such as .gz, says another packing than was found.
void check_packing(const fs::path& path, Packing found);

/// The extension of the name in lower case; that of the packed file where the file
/// is packed: ".jsonl" for "a.JSONL" and for a packed "a.jsonl.gz".
std::string data_extension(const fs::path& path, bool is_packed);

/// A file that is larger than this and this many times its packed size when unpacked is refused: no
/// text that people write packs that well.
inline constexpr uint64_t kMaxPackingRatio = 200, kAlwaysUnpackedBytes = uint64_t{256} << 20;

/// The text of one data set file: that of the program where path names one
/// (datasets/named_dataset.h), else mapped as it lies there or, where gzip or zstd packed it,
/// unpacked into a scratch file that has no name in the system's folder for such files ($TMPDIR,
/// else /tmp). Memory does not grow with either. Members and frames that follow one another are one
/// text.
class TextFile {
 public:
  /// Throws Error for a file that cannot be read, is packed and damaged, cut short or too large
  /// when unpacked, and for what is no UTF-8 text by its first bytes: UTF-16, other archives,
  /// tables.
  explicit TextFile(const fs::path& path);
  ~TextFile();
  TextFile(TextFile&&) noexcept;
  TextFile& operator=(TextFile&&) noexcept;

  const fs::path& path() const { return path_; }
  /// Without a byte order mark.
  std::string_view text() const { return text_; }
  /// A part of text() is not needed for now: its pages no longer count as the process's memory.
  void drop(std::string_view part) const;
  /// Drops what a reader has passed, from `dropped` to end, each time that it is kDropEvery bytes,
  /// and moves `dropped` there: a large file does not fill the memory.
  void drop_passed(size_t& dropped, size_t end) const {
    if (end - dropped < kDropEvery) return;
    drop(text_.substr(dropped, end - dropped));
    dropped = end;
  }
  static constexpr size_t kDropEvery = size_t{64} << 20;
  /// SHA-256 of the file's bytes as they lie on the disk.
  std::string sha256() const;

 private:
  class Unpacked;
  fs::path path_;
  std::optional<MappedFile> file_;  ///< nullopt: a text of the program
  std::unique_ptr<Unpacked> unpacked_;
  std::string_view text_;
};

/// The beginning of a packed file's text, at most max_bytes of it, without unpacking the rest.
/// Throws Error as TextFile does.
std::string head_of_packed(const MappedFile& file, size_t max_bytes);

/// Unpacks gzip or zstd data piece by piece through a bounded buffer. write gets each piece, and
/// how many packed bytes it took up to its end, and says whether it wants more. Throws Error for
/// damaged data, data that ends early, and data behind its end that is neither another member nor
/// padding, naming the byte of the packed data and how much had been unpacked.
void unpack(Packing packing, std::span<const std::byte> packed,
            const std::function<bool(std::string_view piece, uint64_t read)>& write);

}  // namespace kvcal
