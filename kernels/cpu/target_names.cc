#include "kernels/cpu/target_names.h"

#include "kernels/cpu/targets.h"

#include <hwy/targets.h>

namespace kvcal {

std::vector<std::string> cpu_target_names() {
  std::vector<std::string> names;
  // A lower bit is a better instruction set.
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1)
    names.push_back(hwy::TargetName(left & -left));
  return names;
}

}  // namespace kvcal
