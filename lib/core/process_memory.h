#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace kvcal {

/// Bytes of memory that this process holds now, mapped pages of files included; and the most it
/// ever held. 0 where the system does not tell.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

/// Bytes that this process can still take before the kernel would have to kill: what its control
/// groups (v1 or v2) leave, and the machine has available; pages of files that can be read again
/// do not count. nullopt where the system does not tell. root: where proc and sys lie.
std::optional<uint64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace kvcal
