#pragma once

#include <filesystem>

namespace kvcal {

/// Throws Error where a file of a checkpoint's folder that would be read or copied is a symbolic
/// link out of it: otherwise an untrusted checkpoint could have any of the user's files copied into
/// an output. Allowed are links within the folder, and those of a hub cache from
/// snapshots/REVISION/ into blobs/. The environment variable KVCAL_FOLLOW_LINKS=1 allows all.
void check_links(const std::filesystem::path& folder);

}  // namespace kvcal
