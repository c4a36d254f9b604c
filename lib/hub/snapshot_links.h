#pragma once

#include <span>
#include <string>

#include "hub/file_download.h"

namespace kvcal {

/// Makes the snapshot of a commit show these files, whose blobs are there: relative links, or
/// copies where the file system has no links. config.json comes last, and refs/ after it, so that
/// a snapshot that was not finished is not taken for a whole one. Throws Error.
void link_snapshot(const HubCache& cache, const HubId& id, const std::string& commit,
                   std::span<const HubFile> files);

/// Marks the cache for backup programs (https://bford.info/cachedir/).
void mark_cache(const HubCache& cache);

}  // namespace kvcal
