#pragma once

#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "core/error.h"
#include "kernels/with_type.h"
#include "quant/fp8.h"

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
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16)
    fail("cannot read ", dtype, " as float32");
  return with_type(dtype, [&]<class T>(T) { return to_float(load<T>(data, i)); });
}

/// Element i of an array of the compute type.
inline float load_float(ComputeType type, const void* data, int64_t i) {
  return with_type(type, [&]<class T>(T) { return to_float(load<T>(data, i)); });
}
inline void store_float(ComputeType type, void* data, int64_t i, float value) {
  with_type(type, [&]<class T>(T) { store(data, i, element_of<T>(value)); });
}

/// RelativeLogits::at in double.
inline double relative_logit(const RelativeLogits& relative, int64_t row, int64_t distance) {
  if (!relative.states || distance >= relative.extent) return 0.0;
  double sum = 0.0;
  for (int64_t i = 0; i < relative.rank; ++i)
    sum += static_cast<double>(relative.states[row * relative.rank + i]) *
           relative.table[distance * relative.rank + i];
  return sum;
}

/// Element i of a KV cache, dequantized; only FP8 uses scale.
inline float load_kv(KvDType dtype, const void* data, int64_t i, float scale) {
  return with_kv_type(dtype, [&]<class T>(T) {
    if constexpr (CodesOf<T>::kAre)
      return scale * fp8::decode(load<T>(data, i));
    else
      return to_float(load<T>(data, i));
  });
}
/// Writes element i of a KV cache: FP8 as the code of value / scale, saturating.
inline void store_kv(KvDType dtype, void* data, int64_t i, float value, float scale) {
  with_kv_type(dtype, [&]<class T>(T) {
    if constexpr (CodesOf<T>::kAre)
      store(data, i, fp8::encode<CodesOf<T>::kFormat>(value / scale));
    else
      store(data, i, element_of<T>(value));
  });
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
