#pragma once

#include <cstdint>

namespace kvcal::cpu {

/// Processors by the instructions that bound their products; each has those of the classes before.
enum class CpuClass : uint8_t { kOther, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// Class of this processor, or a lower one that the environment variable KVCAL_CPU names, or to
/// which Highway's targets are limited. Throws Error where KVCAL_CPU names none.
CpuClass cpu_class();

}  // namespace kvcal::cpu
