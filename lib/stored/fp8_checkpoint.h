#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "stored/coded_matrix.h"
#include "stored/stored_format.h"

namespace kvcal {

/// Quantized weight of one Linear or embedding, and the quantization of its input. Borrows from the
/// ModelDir.
/// Each block of block_rows x block_columns has one scale, for any strategy.
struct LinearQuantization : LinearScheme {
  /// Weight that is not FP8 with the scales below; borrowed from the CheckpointQuantization.
  const CodedMatrix* coded = nullptr;
  TensorView weight_scale;   ///< as scale_at reads, [rows of blocks, columns of blocks]
  float input_scale = 0.0f;  ///< kStatic

  /// FP8 of which each row has one scale.
  bool scales_rows() const { return !coded && weight_scale.shape[1] == 1; }
};

/// Quantized parts of a checkpoint. A tied lm_head is one of linears though it has no tensor: its
/// weight is the embedding's, and its input may be quantized.
struct CheckpointQuantization {
  std::map<std::string, LinearQuantization, std::less<>> linears;  ///< by module, as in the file
  /// Matrices of each expert, by the name of the tensor that stacks them in the family's table.
  std::map<std::string, std::vector<const CodedMatrix*>, std::less<>> stacked;
  std::vector<std::unique_ptr<CodedMatrix>> matrices;  ///< those of linears and stacked
  /// Tensors that only linears and stacked read: scales, and codes with names of their own.
  std::set<std::string, std::less<>> tensors;
  /// Codes of modules that the config does not describe so. They are among problems, too, or are
  /// head_problem.
  std::set<std::string, std::less<>> undescribed;
  KvScheme kv;  ///< KV cache scheme of the config
  /// Contradictions, one line each. Weights reports them with its own.
  std::vector<std::string> problems;
  /// The first contradiction about lm_head, which K and V do not need; empty: none.
  std::string head_problem;
  /// Warnings for the user: points that an engine might read differently.
  std::vector<std::string> warnings;

  /// Whether a weight is not FP8 with plain scales.
  bool has_coded() const { return !matrices.empty(); }
  bool quantizes_inputs() const;
  /// Runs all inputs in 16 bits from now on.
  void leave_inputs();
};

/// Reads the config, finds each module's scales, and checks scales, dtype of the weight and config
/// against each other; contradictions go to problems. Throws Error as read_quantization_config and
/// read_module_schemes do.
CheckpointQuantization read_checkpoint_quantization(const ModelDir& model_dir,
                                                    const ModelConfig& config);

/// llm-compressor's name of an expert's Linear in saved checkpoints, where it differs from the
/// family's: "w1" becomes "gate_proj", "w2" "down_proj", "w3" "up_proj" (Mixtral, Phi-MoE). Empty
/// for any other module.
std::string renamed_expert(const std::string& module);

}  // namespace kvcal
