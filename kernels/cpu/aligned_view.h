#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kvcal {

/// Elements of a checkpoint as T: the mapped bytes, or a copy where they are not aligned for T,
/// because a file's header may have any length. Borrows bytes.
template <class T>
class AlignedView {
 public:
  AlignedView(const std::byte* bytes, int64_t count) : data_(reinterpret_cast<const T*>(bytes)) {
    if (count == 0 || reinterpret_cast<uintptr_t>(bytes) % alignof(T) == 0) return;
    copy_.resize(static_cast<size_t>(count));
    std::memcpy(copy_.data(), bytes, copy_.size() * sizeof(T));
    data_ = copy_.data();
  }
  AlignedView(const AlignedView&) = delete;
  AlignedView& operator=(const AlignedView&) = delete;
  const T* data() const { return data_; }

 private:
  std::vector<T> copy_;
  const T* data_;
};

}  // namespace kvcal
