// What those who call a backend need beside its operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/backend.h"

namespace kvcal {

/// Memory for so many values.
template <class T>
Buffer allocate(Backend& backend, int64_t count) {
  return backend.allocate(static_cast<size_t>(count) * sizeof(T));
}

/// The same, filled with zeros.
template <class T>
Buffer zeros(Backend& backend, int64_t count) {
  Buffer buffer = allocate<T>(backend, count);
  backend.fill_zero(buffer.data(), buffer.size());
  return buffer;
}

/// Number of values that a buffer holds.
template <class T>
int64_t count_of(const Buffer& buffer) {
  return static_cast<int64_t>(buffer.size() / sizeof(T));
}

/// Memory for so many values in a buffer that grows where it is smaller, and then loses its values.
template <class T>
T* grown(Backend& backend, Buffer& buffer, int64_t count) {
  if (count_of<T>(buffer) < count) {
    buffer = {};  // not both at a time
    buffer = allocate<T>(backend, count);
  }
  return buffer.as<T>();
}

/// Copies values of the backend's memory to host.
template <class T>
void download(Backend& backend, const T* values, std::type_identity_t<std::span<T>> host) {
  backend.copy_out(reinterpret_cast<const std::byte*>(values), std::as_writable_bytes(host));
}

/// Host copy of so many values of the backend's memory.
template <class T>
std::vector<T> downloaded(Backend& backend, const T* values, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  download(backend, values, host);
  return host;
}

/// Heads [tokens, heads, head_dim] without gaps.
inline HeadsView contiguous(float* data, int64_t tokens, int64_t heads, int64_t head_dim) {
  return {data, tokens, heads, head_dim, heads * head_dim};
}

/// Tokens [first, first + count) of the heads.
inline HeadsView part_of(const HeadsView& x, int64_t first, int64_t count) {
  return {x.data + first * x.row_stride, count, x.heads, x.head_dim, x.row_stride};
}

/// Rotates heads, which are those of tokens [first, ..) of rope's, as it does these.
inline RopeArgs part_of(const RopeArgs& rope, const HeadsView& heads, int64_t first) {
  RopeArgs part = rope;
  part.x = heads;
  part.positions += first;
  return part;
}

}  // namespace kvcal
