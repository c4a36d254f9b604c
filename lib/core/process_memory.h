#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace kvcal {

/// Bytes of memory that this process holds now, with mapped pages of files; and the most it ever
/// held. 0 where the system does not tell.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

/// Bytes that this process can still take before the kernel has to kill a process: what its control
/// groups (v1 or v2) and the machine leave. Pages of files that can be read again do not count.
/// nullopt where the system does not tell. root: the folder of proc and sys.
std::optional<uint64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace kvcal
