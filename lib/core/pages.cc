#include "core/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

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

}  // namespace kvcal
