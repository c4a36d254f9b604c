#pragma once

#include <cfloat>
#include <optional>
#include <string_view>
#include <vector>

#include "quant/cache_formats/steps.h"
#include "quant/cache_type.h"
#include "quant/fp8.h"
#include "quant/quant_scheme.h"
#include "quant/scale.h"

namespace kvcal {

/// The codes of a cache that has calibrated scales: FP8 of a format, or integers of eight bits from
/// -128 to 127.
class KvFormat {
 public:
  constexpr KvFormat(fp8::Format floats) : floats_(floats) {}
  static constexpr KvFormat int8() {
    KvFormat format(fp8::Format::kE4m3Fn);
    format.is_int8_ = true;
    return format;
  }

  constexpr bool is_int8() const { return is_int8_; }
  /// nullopt: the codes are integers.
  constexpr std::optional<fp8::Format> floats() const {
    return is_int8_ ? std::nullopt : std::optional(floats_);
  }

  /// The code of the amax that makes a scale: 448, 240, 57344 or 127. INT8's -128 is left out, so
  /// that nothing seen clips on either side. compressed-tensors' `calculate_qparams` gives amax /
  /// 127.5 instead, half of the distance from -128 to 127, whose largest value it clamps by half a
  /// step.
  constexpr float largest_code() const { return is_int8_ ? 127.0f : fp8::max_value(floats_); }
  /// Times the scale: the largest magnitude that is not clipped. Integers round up to half a step
  /// more.
  constexpr float holds() const { return is_int8_ ? 127.5f : fp8::max_value(floats_); }
  /// The smallest code above 0.
  constexpr float least_code() const { return is_int8_ ? 1.0f : fp8::decode(1, floats_); }
  /// The code nearest to x, a value over its scale, as a number: ties to even, clipped at the ends.
  constexpr float nearest(float x) const {
    return is_int8_ ? cache_formats::nearest_even(x, -128.0f, 127.0f)
                    : fp8::decode(fp8::encode(x, floats_), floats_);
  }
  /// Magnitudes of codes 0, 1, ... up to the largest.
  std::vector<double> magnitudes() const {
    const uint32_t most = is_int8_ ? 127 : fp8::layout_of(floats_).max_code;
    std::vector<double> values;
    for (uint32_t code = 0; code <= most; ++code)
      values.push_back(is_int8_ ? code : double{fp8::decode(static_cast<uint8_t>(code), floats_)});
    return values;
  }

  friend constexpr bool operator==(const KvFormat&, const KvFormat&) = default;

 private:
  fp8::Format floats_;
  bool is_int8_ = false;
};

/// torch's name: "float8_e4m3fn", "int8".
constexpr std::string_view name_of(const KvFormat& format) {
  return format.is_int8() ? "int8" : fp8::name_of(*format.floats());
}

/// Codes of the cache that args of K and V ask for. fp8: the dtype of those of type float.
inline KvFormat kv_format_of(const QuantArgs& args, KvDType fp8) {
  return args.type == QuantType::kInt ? KvFormat::int8() : KvFormat(fp8_format(fp8));
}

/// The cache that has such codes.
constexpr CacheType cache_type_of(const KvFormat& format) {
  if (format.is_int8()) return CacheFormat::kInt8;
  const fp8::Format floats = *format.floats();
  return floats == fp8::Format::kE5m2       ? KvDType::kFp8E5m2
         : floats == fp8::Format::kE4m3Fnuz ? KvDType::kFp8E4m3Fnuz
                                            : KvDType::kFp8E4m3;
}

/// scale_from of a cache's codes.
inline Scale scale_from(Amax amax, const KvFormat& format) {
  const float scale = amax.value / format.largest_code();
  return {scale == 0.0f ? FLT_EPSILON : scale};
}

}  // namespace kvcal
