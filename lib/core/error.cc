#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace kvcal::internal {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kvcal: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace kvcal::internal
