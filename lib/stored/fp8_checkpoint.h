#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "stored/fp8_schemes.h"
#include "stored/kv_scheme.h"

namespace kvcal {

/// FP8 weights of one Linear or embedding, and what is done to its input. Borrows from the
/// ModelDir.
struct LinearQuantization {
  TensorView weight_scale;                ///< F32, F16 or BF16, [rows of blocks, columns of blocks]
  Strategy strategy = Strategy::kTensor;  ///< as the config says: kTensor, kChannel or kBlock
  int64_t block_rows = 0, block_columns = 0;  ///< of the weight that share a scale
  InputQuantization input = InputQuantization::kNone;
  float input_scale = 0.0f;  ///< kStatic
  int64_t group = 0;         ///< kDynamicGroup: values that share a scale

  /// Every row of the weight has one scale.
  bool scales_rows() const { return weight_scale.shape[1] == 1; }
};

/// What of a checkpoint is FP8. A tied lm_head is one of linears though it has no tensor: its
/// weight is the embedding's, its input may be quantized.
struct CheckpointQuantization {
  std::map<std::string, LinearQuantization, std::less<>> linears;  ///< by module, as in the file
  std::set<std::string, std::less<>> tensors;                      ///< scales that linears hold
  KvScheme kv;                                                     ///< what the config says of it
  /// What does not fit, one line each. Weights tells them beside what it finds.
  std::vector<std::string> problems;
  /// What an engine might read in another way than we do; for the user.
  std::vector<std::string> warnings;
};

/// Reads the config, finds each module's scales and checks that they, the weight's dtype and the
/// config agree. Throws Error as read_quantization_config and read_module_schemes;
/// contradictions go to problems.
CheckpointQuantization read_checkpoint_quantization(const ModelDir& model_dir,
                                                    const ModelConfig& config,
                                                    TargetMatcher matches);

/// What llm-compressor calls an expert's Linear in the checkpoints it saves, where the family's own
/// name is another: "w1" is "gate_proj", "w2" "down_proj", "w3" "up_proj" (Mixtral, Phi-MoE).
/// Empty for any other module.
std::string renamed_expert(const std::string& module);

}  // namespace kvcal
