#pragma once

#include <optional>
#include <string>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// Name of a module in transformers, for the targets and ignore lists of recipes.
struct ModuleName {
  std::string name;          ///< "model.layers.0.self_attn.k_proj"
  std::string class_name;    ///< "Linear", "LlamaAttention", "Embedding"
  std::optional<Role> role;  ///< of its weight; nullopt for attention modules
  int64_t index = 0;         ///< of an expert
  /// Second name that recipes may use: transformers 5's name where the checkpoint has an older one,
  /// for recipes written for llm-compressor ("model.layers.0.mlp.experts.3.gate_proj" for
  /// "….block_sparse_moe.experts.3.w1"), or the checkpoint's where name is transformers'.
  std::string alias = {};
  int64_t layer = -1;     ///< -1: in no layer
  bool is_slice = false;  ///< slice of a tensor that stacks all experts in the family's table
};

/// Every module that a recipe can name: Linears, embeddings and attention modules, also those whose
/// tensor is tied to another, and the Linears of stacked experts under the names that
/// llm-compressor splits them into.
std::vector<ModuleName> list_modules(const ModelConfig& config);

}  // namespace kvcal
