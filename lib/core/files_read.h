// What a command reads is never replaced by what it writes. Names cannot tell: a file has several,
// by links and by mounts. So device and inode of each file that is mapped are remembered.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace kvcal {

class OpenFolder;

/// Begins to remember files that are read, and forgets those of before. A command calls it first.
void remember_files_read();

/// Ends that.
void forget_files_read();

/// Remembers an open file, once remember_files_read was called.
void note_file_read(const std::filesystem::path& file, const struct stat& status);

/// Throws Error where place, or something below it, is a file that has been read. Follows no links;
/// nothing at place is fine.
void check_not_read(const std::filesystem::path& place);
/// The same of a name in an open folder.
void check_not_read(const OpenFolder& folder, const std::string& name);

}  // namespace kvcal
