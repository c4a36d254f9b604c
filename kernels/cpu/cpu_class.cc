#include "kernels/cpu/cpu_class.h"

#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvcal::cpu {

namespace {

constexpr std::array<std::string_view, 5> kNames = {"other", "avx2", "avx512", "avx512_bf16",
                                                    "amx_bf16"};

#if defined(__x86_64__)
bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

/// Requests the tile registers, which Linux grants to a process on request.
bool has_amx_bf16() {
#if defined(SYS_arch_prctl)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h: ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// Highway's targets with AVX-512: of one architecture, a better target has a lower bit.
constexpr int64_t kAvx512Targets = HWY_AVX2 - 1;

CpuClass class_of_targets() {
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & kAvx512Targets) != 0) return CpuClass::kAmx;  // or any before it
  return (targets & HWY_AVX2) != 0 ? CpuClass::kAvx2 : CpuClass::kOther;
}

CpuClass class_of_processor() {
  const CpuClass by_targets = class_of_targets();
  if (by_targets != CpuClass::kAmx) return by_targets;
  if (!has_avx512_bf16()) return CpuClass::kAvx512;
  return has_amx_bf16() ? CpuClass::kAmx : CpuClass::kAvx512Bf16;
}

void limit_targets(CpuClass most) {
  if (most < CpuClass::kAvx512) hwy::DisableTargets(kAvx512Targets);
  if (most < CpuClass::kAvx2) hwy::DisableTargets(kAvx512Targets | HWY_AVX2);
}
#else
CpuClass class_of_targets() {
  return CpuClass::kOther;
}
CpuClass class_of_processor() {
  return CpuClass::kOther;
}
void limit_targets(CpuClass) {}
#endif

/// What KVCAL_CPU allows.
CpuClass most_allowed() {
  const char* value = std::getenv("KVCAL_CPU");
  if (!value || !*value) return CpuClass::kAmx;
  const auto found = std::ranges::find(kNames, std::string_view(value));
  if (found == kNames.end())
    fail("KVCAL_CPU is '", value, "', expected other, avx2, avx512, avx512_bf16 or amx_bf16");
  return static_cast<CpuClass>(found - kNames.begin());
}

CpuClass find_class() {
  const CpuClass most = most_allowed();
  const CpuClass found = std::min(most, class_of_processor());
  limit_targets(most);
  return found;
}

}  // namespace

CpuClass cpu_class() {
  static const CpuClass kFound = find_class();
  return std::min(kFound, class_of_targets());
}

}  // namespace kvcal::cpu
