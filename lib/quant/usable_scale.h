#pragma once

#include <cfloat>
#include <string_view>

#include "quant/scale.h"

namespace kvcal {

/// Whether a scale, its inverse and its products with FP8 codes from 1 on are finite and normal
/// numbers: others would become zeros or infinities, in this program and in engines.
inline bool is_usable(Scale scale) {
  return scale.value >= FLT_MIN && scale.value <= FLT_MAX / fp8::max_value(fp8::Format::kE5m2);
}
/// For messages: what a scale is expected to be.
inline constexpr std::string_view kUsableScale = "a scale from 1.2e-38 to 5.9e33";

}  // namespace kvcal
