#pragma once

#include <cstdlib>
#include <stdexcept>

#include "core/file.h"

namespace kvcal::test {

/// The folder tools/fetch_demo_model.sh makes; its tests are tagged [slow] and fail without it.
inline fs::path demo_model() {
  const char* folder = std::getenv("KVCAL_DEMO_MODEL");
  if (!folder || !fs::exists(fs::path(folder) / "config.json"))
    throw std::runtime_error(
        "KVCAL_DEMO_MODEL names no model folder; run tools/fetch_demo_model.sh");
  return folder;
}

}  // namespace kvcal::test
