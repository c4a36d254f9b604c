#include "served_engines.h"

#include <iostream>

#include "inspect/served_engines.h"

namespace kvcal {

void print_served_engines(const std::filesystem::path& folder, const ModelConfig& config) {
  for (const ServedEngine& engine : served_engines(folder, config))
    std::cout << (engine.is_served ? "serves " : "does not serve ") << engine.title
              << (engine.is_served ? "" : ": ") << engine.note << '\n';
}

}  // namespace kvcal
