#include "kernels/cpu/cpu_class.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/target_here.cc"
#include "kernels/cpu/targets.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

int64_t own_target() {
  return HWY_TARGET;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

HWY_EXPORT(own_target);

int64_t target_here() {
  return HWY_DYNAMIC_DISPATCH(own_target)();
}

}  // namespace kvcal::cpu
#endif
