#include "quant/quant_plan.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace kvcal {
namespace {

struct Fusion {
  std::string_view name;
  std::vector<std::string_view> members;
};
const std::vector<Fusion> kFusions{
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}},
};

}  // namespace

bool is_expert(const std::string& module) {
  return module.find(".experts.") != std::string::npos;
}

std::vector<FusedModules> fused_modules(const std::vector<std::string>& names) {
  const std::set<std::string_view> all(names.begin(), names.end());
  std::vector<FusedModules> found;
  for (const std::string& name : names) {
    const size_t dot = name.rfind('.') + 1;
    const std::string parent = name.substr(0, dot);
    for (const Fusion& fusion : kFusions) {
      if (std::string_view(name).substr(dot) != fusion.members[0] || is_expert(name)) continue;
      FusedModules fused{.name = parent + std::string(fusion.name), .members = {}};
      for (const std::string_view member : fusion.members)
        fused.members.push_back(parent + std::string(member));
      if (std::ranges::all_of(fused.members,
                              [&](const std::string& member) { return all.contains(member); }))
        found.push_back(std::move(fused));
    }
  }
  return found;
}

}  // namespace kvcal
