#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/operations.h"

namespace kvcal::cpu {

/// Largest finite magnitude of some values, and the number of values that are not finite.
struct Magnitudes {
  float amax = 0.0f;
  uint64_t nonfinite = 0;

  void merge(const Magnitudes& other) {
    amax = other.amax > amax ? other.amax : amax;
    nonfinite += other.nonfinite;
  }
};

/// Folds the output of one block into the operation's slot, if any. Thread-safe: neither a maximum
/// nor a count depends on the order.
inline void fold_into(const AmaxSlot& seen, const Magnitudes& block) {
  if (!seen) return;
  const std::atomic_ref amax(*seen.amax);
  float before = amax.load(std::memory_order_relaxed);
  while (before < block.amax && !amax.compare_exchange_weak(before, block.amax)) {
  }
  if (block.nonfinite > 0)
    std::atomic_ref(*seen.nonfinite).fetch_add(block.nonfinite, std::memory_order_relaxed);
}

/// A block of an activation's rows: out = activation(gate) · up, as in ActivationArgs.
struct ActivationBlock {
  const float* gate = nullptr;  ///< row r at gate + r * x_stride
  const float* up = nullptr;    ///< row r at up + r * x_stride; null: not gated
  int64_t x_stride = 0;
  int64_t rows = 0, width = 0;
  ActivationFunction activation = {};
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< row r at element r * out_stride
  int64_t out_stride = 0;
};

/// Computes the block in the calling thread, with the best instruction set. Returns the magnitudes
/// of its output.
Magnitudes activate_block(const ActivationBlock& block);

}  // namespace kvcal::cpu

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
