#include "terminal/verbosity.h"

namespace kvcal {
namespace {

constexpr size_t kMostRows = 40;

Verbosity chosen = Verbosity::kNormal;

}  // namespace

void set_verbosity(Verbosity verbosity) {
  chosen = verbosity;
}

bool is_quiet() {
  return chosen == Verbosity::kQuiet;
}

bool is_listed(size_t num_rows) {
  return chosen == Verbosity::kVerbose || num_rows <= kMostRows;
}

}  // namespace kvcal
