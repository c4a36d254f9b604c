#pragma once

#include <optional>
#include <string_view>

#include "quant/fp8.h"

namespace kvcal::gpu {

/// FP8 format with four exponent bits that a chip computes natively; nullopt where it has none. All
/// chips make codes of every format in software, so this affects no bytes. Source: CUDA programming
/// guide, compute capability 8.9; ROCm documentation, "FP8 types": FNUZ on gfx94x, OCP on gfx95x
/// and gfx12.
constexpr std::optional<fp8::Format> native_fp8_format(std::string_view architecture) {
  if (architecture.starts_with("gfx94")) return fp8::Format::kE4m3Fnuz;
  if (architecture.starts_with("gfx95") || architecture.starts_with("gfx12"))
    return fp8::Format::kE4m3Fn;
  if (!architecture.starts_with("sm_")) return std::nullopt;
  const std::string_view capability = architecture.substr(3);  // "80", "89", "100"
  const bool has_fp8 = capability.size() > 2 || capability >= "89";
  return has_fp8 ? std::optional(fp8::Format::kE4m3Fn) : std::nullopt;
}

}  // namespace kvcal::gpu
