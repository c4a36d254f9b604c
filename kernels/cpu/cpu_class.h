#pragma once

#include <cstdint>
#include <string_view>

namespace kvcal::cpu {

/// Processors by the instructions that bound their products; each has those of the classes before.
enum class CpuClass : uint8_t { kOther, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// Class of this processor by what is fastest on it, or the one that the environment variable
/// KVCAL_CPU names, if the processor has its instructions, or a lower one to which Highway's
/// targets are limited. Throws Error where KVCAL_CPU names none.
CpuClass cpu_class();
/// As KVCAL_CPU has it: "avx512_bf16".
std::string_view name_of(CpuClass level);

/// Highway's target whose code a call takes now (target_here.cc).
int64_t target_here();

}  // namespace kvcal::cpu
