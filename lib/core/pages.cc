#include "core/pages.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"

namespace kvcal {
namespace {

/// Usual size of Linux's window, beyond which it does not read ahead in one call.
constexpr size_t kReadAhead = size_t{128} << 10;

void advise(std::span<const std::byte> part, int advice) {
  if (part.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void will_need_pages(std::span<const std::byte> part) {
  for (size_t begin = 0; begin < part.size(); begin += kReadAhead)
    advise(part.subspan(begin, std::min(kReadAhead, part.size() - begin)), MADV_WILLNEED);
}

void release_pages(std::span<const std::byte> part) {
  advise(part, MADV_DONTNEED);
}

size_t PageSubstitute::page_size() {
  return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

PageSubstitute::PageSubstitute(size_t size) : size_(size) {
  KVCAL_CHECK(size > 0 && size % page_size() == 0);
  // The pages belong to a file in memory, which can be mapped twice and keeps its bytes when they
  // are released.
  descriptor_ = ::memfd_create("kvcal-layer", MFD_CLOEXEC);
  if (descriptor_ < 0 || ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    const int code = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail("cannot get ", size, " bytes of memory for a layer: ", std::strerror(code));
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    ::close(descriptor_);
    fail("cannot map ", size, " bytes of memory for a layer: ", std::strerror(code));
  }
  memory_ = static_cast<std::byte*>(memory);
}

PageSubstitute::~PageSubstitute() {
  ::munmap(memory_, size_);
  ::close(descriptor_);
}

void PageSubstitute::place(std::span<const std::byte> part, const std::byte* at) const {
  const auto offset = static_cast<off_t>(part.data() - memory_);
  void* placed = ::mmap(const_cast<std::byte*>(at), part.size(), PROT_READ, MAP_SHARED | MAP_FIXED,
                        descriptor_, offset);
  if (placed == MAP_FAILED)
    fail("cannot place ", part.size(), " bytes of a layer: ", std::strerror(errno));
}

void restore_pages(int descriptor, uint64_t offset, const std::byte* at, size_t size) noexcept {
  ::mmap(const_cast<std::byte*>(at), size, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor,
         static_cast<off_t>(offset));
}

}  // namespace kvcal
