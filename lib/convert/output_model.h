#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "export/writer.h"
#include "family/model_config.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// Configs of a checkpoint's quantized weights (and queries), without K and V, which the format's
/// strip_cache removes. nullopt where weights are 16-bit.
std::optional<SourceQuantization> read_kept_quantization(const ModelDir& model);

/// Whether an output of format keeps the weights; with joined formats, all must keep them.
bool keeps_weights(const SourceQuantization& kept, std::string_view format);

/// Takes queries out of the description, for outputs without their scales: readers would look for
/// them. What describes nothing then is reset. Returns whether any were described.
bool strip_queries(std::optional<SourceQuantization>& kept);

/// The format of ours for weights whose own format has no place for KV scales: quark for MXFP4 of
/// gpt-oss, else compressed-tensors.
std::string usual_recoding(const SourceQuantization& kept);

/// The format among those given, each maybe several joined by '+', that the weights get:
/// usual_recoding, or compressed-tensors. Empty: the weights stay as they are.
std::string recoding_target(const SourceQuantization& kept,
                            const std::vector<std::string>& formats);

/// Why compressed-tensors cannot hold the codes of these weights, naming a tensor; empty: it can.
std::string recoding_problem(const CheckpointQuantization& weights);
/// Why engines do not load such codes in compressed-tensors' format, naming a tensor; empty: they
/// do. Source: vLLM 0.32, run (docs/verify.md).
std::string recoding_caveat(const CheckpointQuantization& weights);

/// Weights in another format than the source's.
struct Recoded {
  SourceQuantization kept;  ///< the description for config.json
  std::string note = {};    ///< tells the user
  std::string caveat = {};  ///< as recoding_caveat
};

/// Gives the quantized weights of model another format, so that copies of it are in that format.
/// Target compressed-tensors: its tensors with the same codes and scales replace those of GPTQ,
/// AWQ, bitsandbytes' INT8, and MXFP4 of gpt-oss, whose stacked experts get tensors of their own,
/// with their biases. Target quark: the tensors of gpt-oss stay. weights: of this model, borrowed
/// by it from now on. source: the format's name for the note. Throws Error naming a tensor as
/// recoding_problem does, and for quantized tensors that the text model does not run.
Recoded recode_weights(ModelDir& model, const ModelConfig& config,
                       const CheckpointQuantization& weights, const std::string& source,
                       const std::string& target);

/// A checkpoint as writers take it where that is not the one that is read.
struct OutputModel {
  ModelDir model;
  std::optional<SourceQuantization> kept;  ///< quantized weights that stay as they are in model
  CheckpointQuantization recoded;          ///< weights in another format than the source's
};

/// Takes away a checkpoint's own scales of K and V, and gives its weights the format of one of the
/// formats where they have another (recode_weights). nullopt: neither is needed. Notes both, and
/// warns where engines do not load the new format. Throws Error as recode_weights does.
std::optional<OutputModel> output_model(const ModelDir& source, const ModelConfig& config,
                                        const std::vector<std::string>& formats,
                                        Diagnostics& diagnostics);

/// Hides scales of K and V, and these tensors; removes what config.json says of quantization.
void strip_scales(ModelDir& model, const ModelConfig& config,
                  const std::set<std::string, std::less<>>& tensors = {});

}  // namespace kvcal
