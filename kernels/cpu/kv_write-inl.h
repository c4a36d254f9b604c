// Stores elements of a KV cache. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_KV_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_KV_WRITE_INL_H_
#undef KVCAL_KERNELS_CPU_KV_WRITE_INL_H_
#else
#define KVCAL_KERNELS_CPU_KV_WRITE_INL_H_
#endif

#include "kernels/cpu/fp8_write-inl.h"
#include "kernels/cpu/kv_read-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Stores one head of one token; returns how many values saturated.
HWY_INLINE uint64_t store_head(const StoreKvArgs& args, const float* x, int64_t head, int64_t out) {
  const int64_t head_dim = args.x.head_dim;
  switch (args.dtype) {
    case KvDType::kFloat32:
      convert_row(x, head_dim, static_cast<float*>(args.out) + out);
      return 0;
    case KvDType::kFloat16:
      convert_row(x, head_dim, static_cast<F16*>(args.out) + out);
      return 0;
    case KvDType::kBFloat16:
      convert_row(x, head_dim, static_cast<BF16*>(args.out) + out);
      return 0;
    default:
      break;
  }
  auto* codes = static_cast<uint8_t*>(args.out) + out;
  switch (fp8_format(args.dtype)) {
    case fp8::Format::kE4m3Fn:
      return quantize_row<fp8::Format::kE4m3Fn>(x, head_dim, args.scales[head], codes);
    case fp8::Format::kE4m3Fnuz:
      return quantize_row<fp8::Format::kE4m3Fnuz>(x, head_dim, args.scales[head], codes);
    case fp8::Format::kE5m2:
      break;
  }
  return quantize_row<fp8::Format::kE5m2>(x, head_dim, args.scales[head], codes);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
