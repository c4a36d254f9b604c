#pragma once

#include <filesystem>

namespace kvcal {

/// Throws Error where a file of a checkpoint's folder that would be read or copied is a symbolic
/// link to a place outside of it: a stranger's checkpoint could have any file of ours copied into
/// an output. Fine are links within the folder, and those of a hub cache, from
/// snapshots/REVISION/ into blobs/. The environment variable KVCAL_FOLLOW_LINKS=1 allows all.
void check_links(const std::filesystem::path& folder);

}  // namespace kvcal
