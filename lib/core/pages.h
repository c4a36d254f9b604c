#pragma once

#include <cstddef>
#include <span>

namespace kvcal {

/// Starts to fetch the pages of a mapped file that hold these bytes. May wait while the system's
/// queue is full. Does not change the bytes.
void will_need_pages(std::span<const std::byte> part);
/// Removes pages of a mapped file from this process's memory until the next read. Written bytes go
/// to the file at a time that the system chooses. Does not change the bytes.
void release_pages(std::span<const std::byte> part);

}  // namespace kvcal
