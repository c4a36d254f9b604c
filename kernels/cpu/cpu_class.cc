#include "kernels/cpu/cpu_class.h"

#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
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

/// Highway 1.0's DisableTargets does not limit what is called: SupportedTargets chooses among all
/// targets of the processor once more.
void limit_targets(CpuClass most) {
  if (most >= CpuClass::kAvx512) return;
  const int64_t disabled = most < CpuClass::kAvx2 ? kAvx512Targets | HWY_AVX2 : kAvx512Targets;
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~disabled);
}

/// Whether a dot product of bfloat16 brings more than a multiply-add of float32, in which products
/// of bfloat16 are exact. Of Intel's processors a Xeon of model 207 made 1.2e9 of the one and 4.8e9
/// of the other a second (one thread, registers of 64 bytes): half of the products.
bool has_fast_dot_products() {
  return !__builtin_cpu_is("intel");
}
#else
CpuClass class_of_targets() {
  return CpuClass::kOther;
}
CpuClass class_of_processor() {
  return CpuClass::kOther;
}
void limit_targets(CpuClass) {}
bool has_fast_dot_products() {
  return true;
}
#endif

/// What KVCAL_CPU allows; nullopt: all.
std::optional<CpuClass> most_allowed() {
  const char* value = std::getenv("KVCAL_CPU");
  if (!value || !*value) return std::nullopt;
  const auto found = std::ranges::find(kNames, std::string_view(value));
  if (found == kNames.end())
    fail("KVCAL_CPU is '", value, "', expected other, avx2, avx512, avx512_bf16 or amx_bf16");
  return static_cast<CpuClass>(found - kNames.begin());
}

CpuClass find_class() {
  const std::optional<CpuClass> most = most_allowed();
  const CpuClass found = class_of_processor();
  if (!most)
    return found == CpuClass::kAvx512Bf16 && !has_fast_dot_products() ? CpuClass::kAvx512 : found;
  limit_targets(*most);
  return std::min(*most, found);
}

}  // namespace

CpuClass cpu_class() {
  static const CpuClass kFound = find_class();
  return std::min(kFound, class_of_targets());
}

std::string_view name_of(CpuClass level) {
  return kNames[static_cast<size_t>(level)];
}

}  // namespace kvcal::cpu
