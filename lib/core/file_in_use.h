#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>

namespace kvcal {

/// Changes of a file while it is mapped. Where it is cut, or its disk fails, the system
/// sends SIGBUS to whoever reads the pages that are gone: they read as zero then, and the work ends
/// with an Error at its next safe point (throw_if_interrupted). A cut within a page or
/// written over sends no signal: size and time of the last change tell, before any output becomes
/// visible and when the file is closed. One that is replaced in one step is only wrong for what is
/// open when an output is ready, since that may have been opened anew.

/// Takes SIGBUS over, for files in use; others end the process as they would.
void handle_lost_pages();
/// Throws Error naming the first file that was seen to change. Cheap.
void throw_if_file_changed();
/// The same after looking at all files in use.
void check_files_in_use();

/// Forgets the changes seen so far, for a caller that goes on with other files.
void forget_changed_files();

/// Runs body. A file that changed comes before whatever else it throws, which may follow from it.
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

/// Says that pages are a file's, as long as it lives.
class FileInUse {
 public:
  /// status: of the file when it was mapped. may_grow: only what does not change is read.
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
