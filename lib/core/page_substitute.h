#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcal {

/// Memory that stands for a while where pages of a mapped file are, with the same bytes: who reads
/// the mapping need not know where they came from. First filled, then placed whole, so that nobody
/// sees it half done. It is not the process's resident memory but where it is read, yet it is the
/// machine's until the end.
class PageSubstitute {
 public:
  /// size: a multiple of page_size(). Throws Error where there is no such memory.
  explicit PageSubstitute(size_t size);
  /// Pages that restore has not taken away stay in place.
  ~PageSubstitute();
  PageSubstitute(const PageSubstitute&) = delete;
  PageSubstitute& operator=(const PageSubstitute&) = delete;

  /// To be filled; pages that are released (core/pages.h) keep what they hold.
  std::span<std::byte> memory() const { return {memory_, size_}; }
  /// Puts part, of memory(), where the pages at `at` are. Both begin at pages. Throws Error.
  void place(std::span<const std::byte> part, const std::byte* at) const;

  static size_t page_size();

 private:
  size_t size_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

/// Maps a file's own bytes at `at` again, as MappedFile did. Where the system cannot, what was
/// placed stays; its bytes are the same.
void restore_pages(int descriptor, uint64_t offset, const std::byte* at, size_t size) noexcept;

}  // namespace kvcal
