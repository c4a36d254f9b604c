#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quant/quant_args.h"
#include "quant/quant_scheme.h"
#include "quant/stacked_slice.h"

namespace kvcal {

/// A Linear or Embedding whose weight, and maybe input, is quantized.
struct PlannedLinear {
  std::string module;  ///< "model.layers.0.mlp.down_proj", as the checkpoint names it
  int64_t layer = -1;  ///< -1: of none
  size_t group = 0;    ///< of QuantPlan::groups
  bool is_embedding = false;
};

/// An attention module of a model whose KV cache is quantized.
struct PlannedAttention {
  std::string module;  ///< "model.layers.0.self_attn"
  int64_t layer = 0;
  bool ignored = false;  ///< has no scale in any output
  QuantArgs kv;          ///< of K and V; equal in type and strategy for all that are not ignored
  std::optional<QuantArgs> q;  ///< where queries are quantized too
};

/// A matrix or bias of one expert that gets a tensor of its own, out of one that stacks all.
struct SplitTensor {
  std::string name;  ///< "model.layers.0.mlp.experts.3.gate_proj.weight"
  StackedSlice slice;
};

/// A recipe resolved against a model: what becomes of each module.
struct QuantPlan {
  /// Those with Linears, in the order of their first module; targets by which
  /// readers of config.json find the plan: as written where they do.
  std::vector<QuantScheme> groups;
  std::vector<PlannedLinear> linears;  ///< in checkpoint order: embedding, layers, lm_head
  /// All attention modules in layer order; empty: the KV cache is not quantized.
  std::vector<PlannedAttention> attention;
  std::string attention_class;  ///< "LlamaAttention"
  /// Modules of the classes that are quantized which are not, in checkpoint order; routers count as
  /// Linear.
  std::vector<std::string> unquantized;
  /// The same of what the checkpoint holds and the model does not run (UnrunModule).
  std::vector<std::string> unrun;
  /// config.json's ignore: unquantized, unrun and the attention modules that are ignored, by class.
  std::vector<std::string> ignore;
  /// For each layer with a quantized expert in a stacked tensor, all that those tensors
  /// hold, also what is not quantized.
  std::vector<SplitTensor> split;
  /// A tied model whose lm_head (or embedding) alone is quantized, or differently: both are
  /// written.
  bool unties_embedding = false;
  /// Modules of a tied model, planned or not: "model.embed_tokens", whose tensor the file has, and
  /// "lm_head", which uses it too. Empty where they are not tied.
  std::string tied_embedding, tied_head;

  bool quantizes_kv() const { return !attention.empty(); }
  bool quantizes_weights() const { return !linears.empty(); }
};

}  // namespace kvcal
