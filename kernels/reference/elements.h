#pragma once

#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "core/error.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal::reference {

/// Element i of memory that need not be aligned (mapped files are not).
template <class T>
T load(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}
template <class T>
void store(void* data, int64_t i, T value) {
  std::memcpy(static_cast<std::byte*>(data) + i * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

/// Element i of a checkpoint tensor of F32, F16 or BF16.
inline float load_float(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return load<float>(data, i);
    case DType::kF16:
      return to_float(load<F16>(data, i));
    case DType::kBF16:
      return to_float(load<BF16>(data, i));
    default:
      fail("cannot read ", dtype, " as float32");
  }
}

/// Element i of an array of the compute type.
inline float load_float(ComputeType type, const void* data, int64_t i) {
  switch (type) {
    case ComputeType::kFloat32:
      return load<float>(data, i);
    case ComputeType::kBFloat16:
      return to_float(load<BF16>(data, i));
    case ComputeType::kFloat16:
      return to_float(load<F16>(data, i));
  }
  return 0.0f;
}
inline void store_float(ComputeType type, void* data, int64_t i, float value) {
  switch (type) {
    case ComputeType::kFloat32:
      return store(data, i, value);
    case ComputeType::kBFloat16:
      return store(data, i, to_bf16(value));
    case ComputeType::kFloat16:
      return store(data, i, to_f16(value));
  }
}

/// Element i of a KV cache, dequantized; only FP8 uses scale.
inline float load_kv(KvDType dtype, const void* data, int64_t i, float scale) {
  switch (dtype) {
    case KvDType::kFloat32:
      return load<float>(data, i);
    case KvDType::kFloat16:
      return to_float(load<F16>(data, i));
    case KvDType::kBFloat16:
      return to_float(load<BF16>(data, i));
    default:
      return scale * fp8::decode(load<uint8_t>(data, i), fp8_format(dtype));
  }
}
/// Writes element i of a KV cache: FP8 as the code of value / scale, saturating.
inline void store_kv(KvDType dtype, void* data, int64_t i, float value, float scale) {
  switch (dtype) {
    case KvDType::kFloat32:
      return store(data, i, value);
    case KvDType::kFloat16:
      return store(data, i, to_f16(value));
    case KvDType::kBFloat16:
      return store(data, i, to_bf16(value));
    default:
      return store(data, i, fp8::encode(value / scale, fp8_format(dtype)));
  }
}

inline double logistic(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
/// Factor that a gate gives.
inline double gated(GateFunction function, double gate) {
  if (function == GateFunction::kIdentity) return gate;
  if (function == GateFunction::kSoftplus)
    return std::max(gate, 0.0) + std::log1p(std::exp(-std::fabs(gate)));
  return function == GateFunction::kSilu ? gate * logistic(gate) : logistic(gate);
}

}  // namespace kvcal::reference
