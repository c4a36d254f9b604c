#include "quant/weight_loops.h"

#include <cstring>
#include <type_traits>

#include "quant/host_device.h"
#include "quant/power.h"

// All functions here are inlined into one function per instruction set, which has the target
// attribute.

namespace kvcal::weight_loops {
namespace {

template <DType kDType>
using Bits = std::conditional_t<kDType == DType::kF32, uint32_t, uint16_t>;

template <DType kDType>
KVCAL_INLINE Bits<kDType> load(const std::byte* elements, size_t index) {
  Bits<kDType> bits;
  std::memcpy(&bits, elements + index * sizeof(bits), sizeof(bits));
  return bits;
}

/// Magnitude of a finite element, exactly.
template <DType kDType>
KVCAL_INLINE float magnitude_of(Bits<kDType> element) {
  if constexpr (kDType == DType::kF32) return float_of(element & 0x7fffffffu);
  const uint32_t magnitude = element & 0x7fffu;
  if constexpr (kDType == DType::kBF16) return float_of(magnitude << 16);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  return float_of(choose(magnitude < 0x400u, bits_of(subnormal), normal));
}

template <DType kDType>
KVCAL_INLINE uint32_t sign_of(Bits<kDType> element) {
  return static_cast<uint32_t>(element >> (8 * sizeof(element) - 8)) & 0x80u;
}

/// Rounds a float32 magnitude to a coarser grid, ties to even. The grid's step is 2^least_exponent
/// / 2^mantissa_bits up to 2^least_exponent, and from there on 2^-mantissa_bits times the power of
/// two below the magnitude. Adding the power of two whose last mantissa bit is worth one step lets
/// the adder round, and leaves the number of steps in the low bits.
template <int kMantissaBits, int kLeastExponent>
struct OnGrid {
  uint32_t anchor, sum;

  KVCAL_INLINE explicit OnGrid(uint32_t magnitude) {
    const uint32_t power = magnitude & 0x7f800000u;
    anchor = (power > kLeast ? power : kLeast) + kDistance;
    sum = bits_of(float_of(magnitude) + float_of(anchor));
  }
  KVCAL_INLINE float value() const { return float_of(sum) - float_of(anchor); }
  /// The magnitude in the format with these mantissa bits whose smallest normal number is
  /// 2^kLeastExponent.
  KVCAL_INLINE uint32_t code() const {
    return sum - anchor + ((anchor - kLeast - kDistance) >> (23 - kMantissaBits));
  }

 private:
  static constexpr uint32_t kLeast = static_cast<uint32_t>(127 + kLeastExponent) << 23;
  static constexpr uint32_t kDistance = static_cast<uint32_t>(23 - kMantissaBits) << 23;
};
using OnE4m3Grid = OnGrid<3, -6>;
using OnE2m3Grid = OnGrid<3, 0>;
using OnF16Grid = OnGrid<10, -14>;

/// magnitude / scale, at most 448, as float32 bits; rounded to the dtype where kRounds.
template <DType kDType, bool kRounds>
KVCAL_INLINE uint32_t quotient_magnitude(float magnitude, float scale) {
  const uint32_t exact = bits_of(magnitude / scale), most = bits_of(448.0f);
  const uint32_t quotient = exact < most ? exact : most;
  if constexpr (!kRounds || kDType == DType::kF32) return quotient;
  if constexpr (kDType == DType::kBF16)
    return (quotient + 0x7fffu + ((quotient >> 16) & 1u)) & 0xffff0000u;
  return bits_of(OnF16Grid(quotient).value());
}

struct LargestLoop {
  template <DType kDType>
  KVCAL_INLINE static uint32_t of(const Run& run) {
    // Signed, because SSE2 compares only signed 16-bit integers.
    using Signed = std::make_signed_t<Bits<kDType>>;
    Signed largest = 0;
    for (size_t i = 0; i < run.count; ++i) {
      const auto element = load<kDType>(run.elements, i);
      const auto magnitude = static_cast<Signed>(element & (Bits<kDType>(-1) >> 1));
      largest = magnitude > largest ? magnitude : largest;
    }
    return static_cast<uint32_t>(largest);
  }
};

template <bool kRounds>
struct EncodeLoop {
  template <DType kDType>
  KVCAL_INLINE static void of(const Run& run, const Coding& coding, uint8_t* __restrict codes) {
    const std::byte* const elements = run.elements;
    const size_t count = run.count;
    const float scale = coding.scale;
    // llm-compressor's oneshot adds a zero point of +0 to the quotient, which turns -0 into +0;
    // model_free_ptq has none.
    const uint32_t least = coding.keeps_zero_sign ? 0 : 1;
    for (size_t i = 0; i < count; ++i) {
      const auto element = load<kDType>(elements, i);
      const uint32_t quotient =
          quotient_magnitude<kDType, kRounds>(magnitude_of<kDType>(element), scale);
      const uint32_t sign = choose(quotient < least, 0u, sign_of<kDType>(element));
      codes[i] = static_cast<uint8_t>(OnE4m3Grid(quotient).code() | sign);
    }
  }
};

template <bool kRounds>
struct EncodeE2m1Loop {
  template <DType kDType>
  KVCAL_INLINE static void of(const Run& run, const Coding& coding, uint8_t* __restrict codes) {
    const std::byte* const elements = run.elements;
    const size_t count = run.count;
    const float scale = coding.scale;
    for (size_t i = 0; i < count; ++i) {
      const auto element = load<kDType>(elements, i);
      const uint32_t quotient =
          quotient_magnitude<kDType, kRounds>(magnitude_of<kDType>(element), scale);
      // Numbers of the middles between two codes that lie below; ties go to the even code.
      const float value = float_of(quotient);
      const uint32_t code = choose(value > 0.25f, 1u, 0u) + choose(value >= 0.75f, 1u, 0u) +
                            choose(value > 1.25f, 1u, 0u) + choose(value >= 1.75f, 1u, 0u) +
                            choose(value > 2.5f, 1u, 0u) + choose(value >= 3.5f, 1u, 0u) +
                            choose(value > 5.0f, 1u, 0u);
      const uint32_t sign = choose(quotient == 0, 0u, sign_of<kDType>(element) >> 4);
      codes[i] = static_cast<uint8_t>(code | sign);
    }
  }
};

template <bool kRounds>
struct EncodeE2m3Loop {
  template <DType kDType>
  KVCAL_INLINE static void of(const Run& run, const Coding& coding, uint8_t* __restrict codes) {
    const std::byte* const elements = run.elements;
    const size_t count = run.count;
    const float scale = coding.scale;
    for (size_t i = 0; i < count; ++i) {
      const auto element = load<kDType>(elements, i);
      const uint32_t quotient =
          quotient_magnitude<kDType, kRounds>(magnitude_of<kDType>(element), scale);
      const uint32_t code = OnE2m3Grid(quotient).code();
      codes[i] = static_cast<uint8_t>((code < 31 ? code : 31u) | sign_of<kDType>(element) >> 2);
    }
  }
};

/// A finite element with its sign.
template <DType kDType>
KVCAL_INLINE float value_of(Bits<kDType> element) {
  return float_of(bits_of(magnitude_of<kDType>(element)) | sign_of<kDType>(element) << 24);
}

/// value, of a magnitude under 65504, rounded to the dtype.
template <DType kDType>
KVCAL_INLINE float rounded(float value) {
  const uint32_t bits = bits_of(value);
  if constexpr (kDType == DType::kF32) return value;
  if constexpr (kDType == DType::kBF16)
    return float_of((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
  const uint32_t sign = bits & 0x80000000u;
  return float_of(bits_of(OnF16Grid(bits & 0x7fffffffu).value()) | sign);
}

struct EncodeIntLoop {
  template <DType kDType>
  KVCAL_INLINE static void of(const Run& run, const IntCoding& given, uint8_t* __restrict codes) {
    // Adding it leaves no bit for a fraction, so the adder rounds.
    constexpr float kAnchor = 0x1.8p23f;
    const IntCoding coding = given;
    const std::byte* const elements = run.elements;
    const size_t count = run.count;
    for (size_t i = 0; i < count; ++i) {
      const float value = value_of<kDType>(load<kDType>(elements, i));
      const float quotient =
          rounded<kDType>(rounded<kDType>(value / coding.scale) + coding.zero_point);
      const float least = quotient < coding.lowest ? coding.lowest : quotient;
      const float clamped = least > coding.highest ? coding.highest : least;
      const float integer = (clamped + kAnchor) - kAnchor;
      codes[i] = static_cast<uint8_t>(static_cast<int32_t>(integer) + coding.added);
    }
  }
};

struct ExtremesLoop {
  template <DType kDType>
  KVCAL_INLINE static Extremes of(const Run& run) {
    Extremes found;
    for (size_t i = 0; i < run.count; ++i) {
      const float value = value_of<kDType>(load<kDType>(run.elements, i));
      found.smallest = value < found.smallest ? value : found.smallest;
      found.largest = value > found.largest ? value : found.largest;
    }
    return found;
  }
};

/// |element - scale x code|; the product is exact in double.
template <DType kDType, bool kRounds>
KVCAL_INLINE double error_of(Bits<kDType> element, float scale) {
  const float magnitude = magnitude_of<kDType>(element);
  const OnE4m3Grid quotient(quotient_magnitude<kDType, kRounds>(magnitude, scale));
  return __builtin_fabs(static_cast<double>(quotient.value()) * static_cast<double>(scale) -
                        static_cast<double>(magnitude));
}

template <bool kRounds>
struct PowersLoop {
  template <DType kDType>
  KVCAL_INLINE static void of(const Run& run, const Coding& coding, double norm,
                              double* __restrict powers) {
    const std::byte* const elements = run.elements;
    const size_t count = run.count;
    const float scale = coding.scale;
    if (norm == 2.0) {
      for (size_t i = 0; i < count; ++i) {
        const double error = error_of<kDType, kRounds>(load<kDType>(elements, i), scale);
        powers[i] = error * error;
      }
    } else {
      for (size_t i = 0; i < count; ++i)
        powers[i] = power(error_of<kDType, kRounds>(load<kDType>(elements, i), scale), norm);
    }
  }
};

/// The loop of the run's dtype.
template <class Loop, class... More>
KVCAL_INLINE auto by_dtype(const Run& run, const More&... more) {
  switch (run.dtype) {
    case DType::kF16:
      return Loop::template of<DType::kF16>(run, more...);
    case DType::kBF16:
      return Loop::template of<DType::kBF16>(run, more...);
    default:
      return Loop::template of<DType::kF32>(run, more...);
  }
}

/// The loop of the run's dtype that rounds quotients to it, or not.
template <template <bool> class Loop, class... More>
KVCAL_INLINE void by_rounding(const Run& run, const Coding& coding, const More&... more) {
  if (coding.rounds_quotient)
    by_dtype<Loop<true>>(run, coding, more...);
  else
    by_dtype<Loop<false>>(run, coding, more...);
}

#define KVCAL_LOOPS(isa, target)                                                                \
  target uint32_t largest_##isa(const Run& run) {                                               \
    return by_dtype<LargestLoop>(run);                                                          \
  }                                                                                             \
  target void encode_##isa(const Run& run, const Coding& coding, uint8_t* codes) {              \
    by_rounding<EncodeLoop>(run, coding, codes);                                                \
  }                                                                                             \
  target void encode_e2m1_##isa(const Run& run, const Coding& coding, uint8_t* codes) {         \
    by_rounding<EncodeE2m1Loop>(run, coding, codes);                                            \
  }                                                                                             \
  target void encode_e2m3_##isa(const Run& run, const Coding& coding, uint8_t* codes) {         \
    by_rounding<EncodeE2m3Loop>(run, coding, codes);                                            \
  }                                                                                             \
  target void encode_int_##isa(const Run& run, const IntCoding& coding, uint8_t* codes) {       \
    by_dtype<EncodeIntLoop>(run, coding, codes);                                                \
  }                                                                                             \
  target Extremes extremes_##isa(const Run& run) {                                              \
    return by_dtype<ExtremesLoop>(run);                                                         \
  }                                                                                             \
  target void powers_##isa(const Run& run, const Coding& coding, double norm, double* powers) { \
    by_rounding<PowersLoop>(run, coding, norm, powers);                                         \
  }                                                                                             \
  constexpr Loops k_##isa##_loops{#isa,                                                         \
                                  largest_##isa,                                                \
                                  encode_##isa,                                                 \
                                  encode_e2m1_##isa,                                            \
                                  encode_e2m3_##isa,                                            \
                                  encode_int_##isa,                                             \
                                  extremes_##isa,                                               \
                                  powers_##isa};

KVCAL_LOOPS(any, )
#if defined(__x86_64__) && defined(__GNUC__)
#define KVCAL_TARGET(set) __attribute__((target(set)))
KVCAL_LOOPS(avx2, KVCAL_TARGET("avx2"))
#if defined(__clang__)
KVCAL_LOOPS(avx512, KVCAL_TARGET("avx512f,avx512bw,avx512vl,avx512dq"))
#else
KVCAL_LOOPS(avx512, KVCAL_TARGET("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"))
#endif
#endif

}  // namespace

std::vector<Loops> runnable() {
  std::vector<Loops> found{k_any_loops};
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx2")) found.push_back(k_avx2_loops);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    found.push_back(k_avx512_loops);
#endif
  return found;
}

const Loops& best() {
  static const Loops kChosen = runnable().back();
  return kChosen;
}

}  // namespace kvcal::weight_loops
