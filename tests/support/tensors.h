#pragma once

#include <span>
#include <string>
#include <utility>

#include "core/tensor.h"

namespace kvcal {

/// A tensor of float32 values.
inline Tensor make_f32_tensor(std::string name, Shape shape, std::span<const float> values) {
  KVCAL_CHECK(element_count(shape) == values.size());
  const auto bytes = std::as_bytes(values);
  return {std::move(name), DType::kF32, std::move(shape), {bytes.begin(), bytes.end()}};
}

}  // namespace kvcal
