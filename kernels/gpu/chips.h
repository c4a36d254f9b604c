#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "quant/fp8.h"

// What chips and drivers can do, as plain values, so that it is tested without a device.
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

/// Whether a chip has the matrix instruction of wave_matrix.h. Source: AMD Instinct MI200 and MI300
/// instruction set references, V_MFMA_F32_16X16X16BF16_1K and V_MFMA_F32_16X16X16_BF16.
constexpr bool has_wave_matrix(std::string_view architecture) {
  return architecture.starts_with("gfx90a") || architecture.starts_with("gfx94") ||
         architecture.starts_with("gfx95");
}

/// Whether an entry of a list such as "80,86-real" is one that is_wanted.
template <class IsWanted>
constexpr bool any_entry(std::string_view list, const IsWanted& is_wanted) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    if (is_wanted(entry)) return true;
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  }
  return false;
}

/// Whether a chip has the matrix instruction of warpgroup_matrix.h, which code compiled for this
/// chip alone may have. Source: PTX ISA, wgmma.mma_async, "Target ISA Notes".
constexpr bool has_warpgroup_matrix(std::string_view architecture, std::string_view compiled) {
  return architecture == "sm_90" &&
         any_entry(compiled, [](std::string_view entry) { return entry.starts_with("90a"); });
}

/// What a vendor calls the units of matrix instructions.
constexpr std::string_view matrix_units(std::string_view architecture) {
  return architecture.starts_with("gfx") ? "matrix cores" : "tensor cores";
}

/// Oldest chip of NVIDIA whose instructions the kernels need: bfloat16 products of warps, and
/// copies into shared memory beside the computation.
constexpr int kOldestCapability = 80;

/// 75 of "sm_75"; 0 where it is no chip of NVIDIA.
constexpr int capability_of(std::string_view architecture) {
  if (!architecture.starts_with("sm_")) return 0;
  int capability = 0;
  for (const char digit : architecture.substr(3)) capability = capability * 10 + (digit - '0');
  return capability;
}

/// Whether one entry of CMAKE_CUDA_ARCHITECTURES gives code that the chip runs: machine code serves
/// later chips of the same generation ("86-real"), PTX every later chip ("90-virtual", and "80",
/// which is both), code with a letter one chip ("90a") or its generation ("120f").
constexpr bool code_runs(int capability, std::string_view entry) {
  int number = 0;
  size_t digits = 0;
  for (; digits < entry.size() && entry[digits] >= '0' && entry[digits] <= '9'; ++digits)
    number = number * 10 + (entry[digits] - '0');
  if (digits == 0) return true;  // "native" or "all": made for the chips that are there
  const std::string_view kind = entry.substr(digits);
  if (kind.starts_with("a")) return capability == number;
  const bool same_generation = capability / 10 == number / 10 && capability >= number;
  if (kind.starts_with("f")) return same_generation;
  return same_generation || (kind != "-real" && capability >= number);
}

/// Whether code compiled for a list such as "80,86-real", or "gfx90a,gfx942", runs on a chip.
constexpr bool has_code_for(std::string_view architecture, std::string_view compiled) {
  const int capability = capability_of(architecture);
  return any_entry(compiled, [&](std::string_view entry) {
    if (capability > 0) return !entry.starts_with("gfx") && code_runs(capability, entry);
    return entry.substr(0, entry.find(':')) == architecture ||
           entry.ends_with("-generic");  // whose members the loader knows
  });
}

/// Why a chip cannot be used by a program with code for compiled, and what to do; "" where it can.
inline std::string chip_problem(std::string_view architecture, std::string_view compiled) {
  const int capability = capability_of(architecture);
  const std::string chip(architecture);
  if (capability > 0 && capability < kOldestCapability)
    return "its chip " + chip + " is older than sm_" + std::to_string(kOldestCapability) +
           ": use a newer device or --device cpu";
  if (has_code_for(architecture, compiled)) return "";
  return "this kvcal has no code for its chip " + chip + ", only for " + std::string(compiled) +
         ": build it with -DKVCAL_GPU_ARCHITECTURES=" + (capability > 0 ? chip.substr(3) : chip) +
         ", or use --device cpu";
}

/// As CUDA writes them, 12040 for 12.4; 0: there is none.
struct DriverVersions {
  int driver = 0, runtime = 0;
};

/// Why there is no device, and what to do. A driver serves programs of its own CUDA generation and
/// of older ones. Source: CUDA compatibility guide, minimum drivers.
inline std::string no_device_text(std::string_view vendor, const DriverVersions& versions,
                                  std::string_view error) {
  const auto name_of = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
  };
  std::string reason(error);
  std::string remedy = "install the driver, make the device visible to this process";
  const int wanted = versions.runtime / 1000;
  if (versions.driver > 0 && versions.driver / 1000 < wanted) {
    reason = "the driver is for CUDA " + name_of(versions.driver) + ", this kvcal for CUDA " +
             name_of(versions.runtime);
    const std::string oldest = wanted == 12 ? " 525" : wanted == 13 ? " 580" : "";
    remedy = oldest.empty() ? "install a newer driver" : "install driver" + oldest + " or later";
    if (versions.driver >= 12000)
      remedy += ", build kvcal with CUDA " + std::to_string(versions.driver / 1000);
  }
  return "no " + std::string(vendor) + " device can be used here" +
         (reason.empty() ? "" : " (" + reason + ")") + ": " + remedy + ", or use --device cpu";
}

}  // namespace kvcal::gpu
