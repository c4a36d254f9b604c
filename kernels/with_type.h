#pragma once

// Elements of any type, and template arguments from values that are known at run time: each
// function with_... calls body with one argument, whose type stands for the value, and returns what
// body does. They are always inlined, so that body is compiled for its caller's instruction set.

#include <type_traits>

#include "backend/scan_operations.h"
#include "quant/half.h"

namespace kvcal {

KVCAL_HD constexpr float to_float(float value) {
  return value;
}
/// value as an element of T, rounded as in quant/half.h.
template <class T>
KVCAL_HD T element_of(float value);
template <>
KVCAL_HD inline float element_of<float>(float value) {
  return value;
}
template <>
KVCAL_HD inline BF16 element_of<BF16>(float value) {
  return to_bf16(value);
}
template <>
KVCAL_HD inline F16 element_of<F16>(float value) {
  return to_f16(value);
}

/// Calls body(std::integral_constant) of value, which is one of those listed.
template <auto kFirst, auto... kRest, class Body>
[[gnu::always_inline]] inline auto with_value(decltype(kFirst) value, const Body& body) {
  if constexpr (sizeof...(kRest) > 0) {
    if (value != kFirst) return with_value<kRest...>(value, body);
  }
  return body(std::integral_constant<decltype(kFirst), kFirst>{});
}

// A switch names every type, so that a new one is an error of the compiler.

/// Calls body(T{}) with the C++ type of an element.
template <class Body>
[[gnu::always_inline]] inline auto with_type(ComputeType type, const Body& body) {
  switch (type) {
    case ComputeType::kFloat32:
      return body(float{});
    case ComputeType::kFloat16:
      return body(F16{});
    case ComputeType::kBFloat16:
      break;
  }
  return body(BF16{});
}
/// The same of an element of a checkpoint, of F32, F16 or BF16.
template <class Body>
[[gnu::always_inline]] inline auto with_type(DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(float{});
  if (dtype == DType::kF16) return body(F16{});
  return body(BF16{});
}
/// The same of an element of a KV cache.
template <class Body>
[[gnu::always_inline]] inline auto with_kv_type(KvDType dtype, const Body& body) {
  switch (dtype) {
    case KvDType::kFloat32:
      return body(float{});
    case KvDType::kFloat16:
      return body(F16{});
    case KvDType::kBFloat16:
      return body(BF16{});
    case KvDType::kFp8E4m3:
      return body(fp8::E4m3Fn{});
    case KvDType::kFp8E4m3Fnuz:
      return body(fp8::E4m3Fnuz{});
    case KvDType::kFp8E5m2:
      break;
  }
  return body(fp8::E5m2{});
}
/// The format of elements that are FP8 codes.
template <class T>
struct CodesOf {
  static constexpr bool kAre = false;
};
template <fp8::Format kOf>
struct CodesOf<fp8::Code<kOf>> {
  static constexpr bool kAre = true;
  static constexpr fp8::Format kFormat = kOf;
};
/// Calls body(std::integral_constant) of the format.
template <class Body>
[[gnu::always_inline]] inline auto with_format(fp8::Format format, const Body& body) {
  using enum fp8::Format;
  return with_value<kE4m3Fn, kE4m3Fnuz, kE5m2>(format, body);
}
/// Calls body(std::integral_constant) of the activation or the function of a gate.
template <class Body>
[[gnu::always_inline]] inline auto with_activation(Activation kind, const Body& body) {
  using enum Activation;
  return with_value<kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kSquaredRelu, kTanh, kXielu, kSitu>(
      kind, body);
}
template <class Body>
[[gnu::always_inline]] inline auto with_gate(GateFunction function, const Body& body) {
  using enum GateFunction;
  return with_value<kSilu, kSigmoid, kSoftplus, kIdentity>(function, body);
}

}  // namespace kvcal
