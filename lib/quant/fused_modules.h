#pragma once

#include <string>
#include <vector>

namespace kvcal {

/// Linears that engines run as one, and that therefore need the same quantization. Source: vLLM
/// 0.32, `packed_modules_mapping` of its models.
struct FusedModules {
  std::string name;                  ///< the engine's: "model.layers.0.self_attn.qkv_proj"
  std::vector<std::string> members;  ///< module names, in the order of the rows
};

/// The sets with all members among names, in the order of their first members. Sets inside experts
/// are left out.
std::vector<FusedModules> fused_modules(const std::vector<std::string>& names);

/// Whether the module belongs to one of many experts, "….experts.3.w1".
bool is_expert(const std::string& module);

}  // namespace kvcal
