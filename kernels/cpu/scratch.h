#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kvcal {

/// Working memory of one thread, kept between calls. Loses its content when it grows.
class Scratch {
 public:
  /// At least count elements, aligned to 64 bytes.
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > size_) {
      memory_.reset();  // not both at a time
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace kvcal
