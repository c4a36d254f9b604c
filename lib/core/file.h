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
#include <utility>
#include <vector>

#include "core/output.h"
#include "core/target_lock.h"

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

/// The renames that bring what is finished to a target's place.
class FilePlacement {
 public:
  /// Throws Error; then nothing has moved.
  void place(const fs::path& finished, const fs::path& target);
  void take_back() noexcept;
  /// Where what was at the target's place is now; empty: nothing was.
  const fs::path& old() const { return old_; }

 private:
  fs::path finished_, target_, old_;
  bool is_placed_ = false;
};

/// An output folder that appears complete or not at all. Files are written below path(), a hidden
/// folder beside the target; commit() flushes and renames it. Without commit() the destructor
/// removes it; the next run with the same target removes what a killed process left. An existing
/// target is an Error unless overwrite and it may be replaced (core/replaceable.h), which happens
/// at commit(). Another run that writes the same target is an Error that names both
/// (core/target_lock.h).
class AtomicDirectory : public StagedOutput {
 public:
  AtomicDirectory(const fs::path& target, bool overwrite);
  ~AtomicDirectory() override;
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const fs::path& path() const { return scratch_; }
  const fs::path& target() const { return target_; }
  void commit();

  void prepare() override;
  void place() override;
  void take_back() noexcept override { placement_.take_back(); }
  void settle() override;

 private:
  /// Makes a folder and its parents; removes those that it made, unless kept.
  class Parents {
   public:
    explicit Parents(const fs::path& folder);
    ~Parents() { take_back(); }
    Parents(const Parents&) = delete;
    Parents& operator=(const Parents&) = delete;
    void keep() { made_.clear(); }

   private:
    void take_back();
    std::vector<fs::path> made_;  ///< innermost first
  };

  /// Address space reserved before the scratch folder is made. Listing a folder takes memory, so
  /// without it the folder could not be removed where a memory limit leaves none. It uses no
  /// memory.
  class Reserve {
   public:
    Reserve();  ///< throws std::bad_alloc
    ~Reserve() { release(); }
    Reserve(const Reserve&) = delete;
    Reserve& operator=(const Reserve&) = delete;
    void release();

   private:
    void* data_;
  };

  /// Throws Error where another folder has replaced the scratch folder.
  void check_scratch() const;

  fs::path target_, scratch_;
  FilePlacement placement_;
  std::pair<uint64_t, uint64_t> scratch_id_;  ///< device and inode
  bool overwrite_ = false;
  Parents parents_;
  std::optional<TargetLock> lock_;  ///< nullopt after commit
  Reserve reserve_;
};

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

/// An output file that appears complete or not at all. Its content is written to path(), beside the
/// target, which commit() replaces; without it the destructor removes the file. Throws Error where
/// target may not be replaced (core/replaceable.h).
class AtomicFile : public StagedOutput {
 public:
  /// The program's own files may replace what it has read; an output of the user may not.
  enum class Of { kUser, kProgram };
  AtomicFile(const fs::path& target, bool overwrite, Of of = Of::kUser);
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const fs::path& path() const { return scratch_; }
  void commit();

  void prepare() override;
  void place() override { placement_.place(scratch_, target_); }
  void take_back() noexcept override { placement_.take_back(); }
  void settle() override;

 private:
  /// Throws Error where the target is an input.
  void check_unread() const;

  fs::path target_;
  std::optional<TargetLock> lock_;  ///< nullopt after commit
  fs::path scratch_;
  bool overwrite_ = false;
  Of of_;
  FilePlacement placement_;
};

/// Writes one of the program's own files as AtomicFile does.
void write_file_atomically(const fs::path& target, std::string_view content, bool overwrite);
/// write_file_atomically for content that write puts into the file it gets.
void write_file_atomically(const fs::path& target, bool overwrite,
                           const std::function<void(const fs::path& file)>& write);

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
