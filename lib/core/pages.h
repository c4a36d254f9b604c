#pragma once

#include <cstddef>
#include <span>

namespace kvcal {

/// For the pages of a mapped file that hold these bytes. Neither changes what they hold.
/// They will be read soon: the system begins to fetch them. May wait while its queue is full.
void will_need_pages(std::span<const std::byte> part);
/// They are not needed for now and no longer count as this process's memory. What was written into
/// them goes to the file when the system likes.
void release_pages(std::span<const std::byte> part);

}  // namespace kvcal
