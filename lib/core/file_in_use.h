// A mapped file may change. MappedFile registers here: a lost page reads as zero instead of
// ending the process. Every safe point (throw_if_interrupted), every record of the state and
// every commit of an output ends the work where a file has changed.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>

namespace kvcal {

/// Changes of a file while it is mapped. When the file is cut or its disk fails, the system sends
/// SIGBUS to the reader of the lost pages. They then read as zero, and the work ends with an Error
/// at its next safe point (throw_if_interrupted). A cut within a page, or an overwrite, sends no
/// signal: size and modification time are compared before any output becomes visible and when the
/// file is closed. A file that was replaced by rename counts as changed only where it is open when
/// an output is ready, since a reader may have opened the new one.

/// Handles SIGBUS for files in use; any other SIGBUS ends the process as before.
void handle_lost_pages();
/// Throws Error naming the first file known to have changed. Cheap.
void throw_if_file_changed();
/// throw_if_file_changed after a check of all files in use.
void check_files_in_use();

/// Forgets the changes so far, for a caller that continues with other files.
void forget_changed_files();

/// Runs body. An Error for a changed file takes precedence over what body throws, which may follow
/// from the change.
template <class Body>
void unless_file_changed(const Body& body) {
  try {
    body();
  } catch (...) {
    throw_if_file_changed();
    throw;
  }
  throw_if_file_changed();
}

/// Declares pages as a file's during its lifetime.
class FileInUse {
 public:
  /// status: of the file when it was mapped. may_grow: only bytes that do not change are read.
  FileInUse(const std::filesystem::path& file, const struct stat& status, const std::byte* begin,
            bool may_grow);
  ~FileInUse();
  FileInUse(const FileInUse&) = delete;
  FileInUse& operator=(const FileInUse&) = delete;

 private:
  struct Entry;
  friend struct FilesInUse;
  Entry* entry_;
};

}  // namespace kvcal
