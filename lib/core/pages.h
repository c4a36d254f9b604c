#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcal {

/// Starts to fetch the pages of a mapped file that hold these bytes. May wait while the system's
/// queue is full. Does not change the bytes.
void will_need_pages(std::span<const std::byte> part);
/// Removes pages of a mapped file from this process's memory until the next read. Written bytes go
/// to the file at a time that the system chooses. Does not change the bytes.
void release_pages(std::span<const std::byte> part);

/// Memory that temporarily replaces pages of a mapped file and holds the same bytes, so readers of
/// the mapping need not know. It is filled first and then placed as a whole, so nobody sees it half
/// filled. It counts as resident memory of the process only where it is read, but as memory of the
/// machine until it is destroyed.
class PageSubstitute {
 public:
  /// size: a multiple of page_size(). Throws Error where the system has no such memory.
  explicit PageSubstitute(size_t size);
  /// Pages that restore_pages has not removed stay in place.
  ~PageSubstitute();
  PageSubstitute(const PageSubstitute&) = delete;
  PageSubstitute& operator=(const PageSubstitute&) = delete;

  /// Memory to fill; released pages (core/pages.h) keep their bytes.
  std::span<std::byte> memory() const { return {memory_, size_}; }
  /// Maps part, of memory(), over the pages at `at`. Both begin at pages. Throws Error.
  void place(std::span<const std::byte> part, const std::byte* at) const;

  static size_t page_size();

 private:
  size_t size_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

/// Maps a file's own bytes at `at` again, as MappedFile did. Where that fails, the substitute
/// stays; its bytes are the same.
void restore_pages(int descriptor, uint64_t offset, const std::byte* at, size_t size) noexcept;

}  // namespace kvcal
