#pragma once

#include <optional>
#include <string>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// A module as transformers names it, for the targets and ignore lists of recipes.
struct ModuleName {
  std::string name;          ///< "model.layers.0.self_attn.k_proj"
  std::string class_name;    ///< "Linear", "LlamaAttention", "Embedding"
  std::optional<Role> role;  ///< of its weight; none for attention modules
  int64_t index = 0;         ///< of an expert
  /// Another name that recipes may use. What transformers 5 calls it where checkpoints have an
  /// older name, for recipes written for llm-compressor: "model.layers.0.mlp.experts.3.gate_proj"
  /// for "….block_sparse_moe.experts.3.w1"; or the checkpoint's, where name is transformers'.
  std::string alias = {};
  int64_t layer = -1;     ///< -1: of none
  bool is_slice = false;  ///< of a tensor that stacks those of all experts, in the family's table
};

/// Every module of the model that a recipe can name: Linears, embeddings and attention modules,
/// also those whose tensor is tied to another, and the Linears of experts that one tensor stacks,
/// as llm-compressor splits and names them.
std::vector<ModuleName> list_modules(const ModelConfig& config);

}  // namespace kvcal
