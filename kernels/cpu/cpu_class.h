#pragma once

#include <cstdint>
#include <string_view>

namespace kvcal::cpu {

/// Processors by the instructions that bound their products; each has those of the classes before.
enum class CpuClass : uint8_t { kOther, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// Class of this processor, or a lower one that the environment variable KVCAL_CPU names, or to
/// which Highway's targets are limited. Throws Error where KVCAL_CPU names none.
CpuClass cpu_class();
/// As KVCAL_CPU names it: "avx2", "avx512", "avx512_bf16", "amx_bf16"; "other".
std::string_view name_of(CpuClass value);

}  // namespace kvcal::cpu
