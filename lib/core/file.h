#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/output.h"

namespace kvcal {

namespace fs = std::filesystem;
class FileInUse;

/// A whole file, mapped read-only. Empty files are legal. Throws Error naming path and reason. A
/// file that changes while it is mapped ends the work (core/file_in_use.h), unless it may grow;
/// then only bytes that do not change may be read.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path, bool may_grow = false);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const& { return {data_, size_}; }
  std::span<const std::byte> bytes() && = delete;
  const fs::path& path() const { return path_; }
  /// Tells the system that these bytes are needed soon, or no longer.
  void will_need(std::span<const std::byte> part) const;
  void drop(std::span<const std::byte> part) const;

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<FileInUse> in_use_;
};

/// Reads a file. Throws Error where it cannot be read or is longer than max_bytes.
std::string read_text(const fs::path& path, size_t max_bytes = size_t{256} << 20);

/// Writes sequentially, checks every call, flushes to disk on close. Throws Error with path and
/// reason ("No space left on device"). The caller removes unfinished files (as AtomicDirectory
/// does).
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Appends a range of another file without copying it through memory where the system can
  /// (reflink, copy_file_range), else through a bounded buffer. Holes stay holes.
  void append_range(const fs::path& source, uint64_t offset, uint64_t size);
  /// fsync and close. A file whose writer was not closed must not be used.
  void close();
  uint64_t position() const { return position_; }

 private:
  fs::path path_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
};

/// Makes a file hold text and nothing else, flushed to disk. Throws Error as FileWriter does.
void write_text_file(const fs::path& path, std::string_view text);

/// Copies a file, as a reflink where the file system can.
void copy_file(const fs::path& source, const fs::path& target);

/// path without links and dots, as far as it exists. A path that cannot be resolved is no error
/// here: opening it tells the reason.
fs::path resolved(const fs::path& path);
/// Where an output with this name lies: the name in its folder without links and dots, which the
/// system and not the text says, so that "link/../name" is what opening it would be. The last name
/// stays as it is, also where it is a link. Throws Error for ".." behind a folder that is not
/// there.
fs::path output_place(const fs::path& target);
/// path without dots where that names the same file, for messages and further names.
fs::path shortened(const fs::path& path);
/// Whether inner equals outer or lies in it. Links and dots are resolved as far as the paths exist.
bool lies_in(const fs::path& inner, const fs::path& outer);

/// Memory in an unlinked scratch file in folder, for data beyond the memory limit.
class ScratchMapping {
 public:
  ScratchMapping(const fs::path& folder, size_t size);
  ~ScratchMapping();
  ScratchMapping(ScratchMapping&& other) noexcept;
  ScratchMapping& operator=(ScratchMapping&&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvcal
