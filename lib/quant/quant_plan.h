// A recipe becomes a plan before anything runs. Calibration and writers read the plan and never
// the recipe's patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quant/quant_scheme.h"
#include "quant/stacked_slice.h"

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

/// A Linear or Embedding with a quantized weight, maybe with quantized inputs.
struct PlannedLinear {
  std::string module;  ///< "model.layers.0.mlp.down_proj", the checkpoint's name
  int64_t layer = -1;  ///< -1: in no layer
  size_t group = 0;    ///< index in QuantPlan::groups
  bool is_embedding = false;
};

/// An attention module of a model whose KV cache is quantized.
struct PlannedAttention {
  std::string module;  ///< "model.layers.0.self_attn"
  int64_t layer = 0;
  bool ignored = false;  ///< has no scale in any output
  QuantArgs kv;  ///< of K and V; type and strategy are equal for all modules that are not ignored
  std::optional<QuantArgs> q;  ///< nullopt: queries are not quantized
};

/// Matrix or bias of one expert that gets a tensor of its own, out of a stacked tensor.
struct SplitTensor {
  std::string name;  ///< "model.layers.0.mlp.experts.3.gate_proj.weight"
  StackedSlice slice;
};

/// A recipe resolved against a model: the quantization of each module.
struct QuantPlan {
  /// Groups with Linears, in the order of their first module, with targets that readers of
  /// config.json resolve to this plan: the recipe's where they do.
  std::vector<QuantScheme> groups;
  std::vector<PlannedLinear> linears;  ///< in checkpoint order: embedding, layers, lm_head
  /// All attention modules in layer order; empty: the KV cache is not quantized.
  std::vector<PlannedAttention> attention;
  std::string attention_class;  ///< "LlamaAttention"
  /// Unquantized modules of classes that are quantized, in checkpoint order; routers count as
  /// Linear.
  std::vector<std::string> unquantized;
  /// Unquantized modules of those classes that the checkpoint holds and the model does not run
  /// (UnrunModule).
  std::vector<std::string> unrun;
  /// Modules that the model does not run and engines run as one with quantized queries: K and V of
  /// layers that read another layer's cache. Outputs lack them, and no other list has them: engines
  /// refuse a fused Linear of codes and 16 bits. Source: SGLang 0.5.23 and vLLM 0.33,
  /// `should_ignore_layer`; llm-compressor's outputs lack them, too.
  std::vector<std::string> left_out;
  /// config.json's ignore: unquantized, unrun and the ignored attention modules, by class.
  std::vector<std::string> ignore;
  /// All matrices and biases of the stacked tensors in each layer with a quantized expert in one,
  /// also unquantized ones.
  std::vector<SplitTensor> split;
  /// lm_head and embedding are tied in the source and differ in the output: only one is quantized,
  /// or both differently.
  bool unties_embedding = false;
  /// Tied modules, planned or not: "model.embed_tokens", which has the tensor, and "lm_head", which
  /// shares it. Empty where they are not tied.
  std::string tied_embedding, tied_head;

  bool quantizes_kv() const { return !attention.empty(); }
  bool quantizes_weights() const { return !linears.empty(); }
};

}  // namespace kvcal
