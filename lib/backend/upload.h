#pragma once

#include <span>

#include "backend/backend.h"

namespace kvcal {

/// Copies host values to a new buffer of the backend.
template <class T>
Buffer upload(std::span<const T> values, Backend& backend) {
  Buffer buffer = backend.allocate(values.size_bytes());
  backend.copy_in(std::as_bytes(values), buffer.data());
  return buffer;
}

}  // namespace kvcal
