#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/tensor.h"
#include "export/writer.h"
#include "quant/calibration.h"

namespace kvcal {

/// The one scale that K and V of a layer share in formats that hold one: the largest of both and of
/// all heads, so that nothing saturates that did not before. The layer is not ignored.
Scale shared_scale(const AttentionCalibration& layer);

/// The largest of one side's scales, of which there is one at least, so that no head saturates that
/// did not before.
Scale largest_of(const std::vector<Scale>& scales);

/// Whether more than one value a layer would be lost by shared_scale.
bool has_head_scales(const Calibration& calibration);

/// Whether queries are quantized too.
bool has_query_scales(const Calibration& calibration);

/// Modules without scales, in layer order.
std::vector<std::string> ignored_modules(const Calibration& calibration);

/// The first tensor of a module, by name. Throws Error where it has none.
const TensorView& first_tensor_of(const ModelDir& model, const std::string& module);

/// dtype of an attention module's first tensor, by name: what llm-compressor gives the scales.
/// Throws Error where it is not F16, BF16 or F32.
DType module_dtype(const ModelDir& model, const std::string& module);

/// The 16 bits that engines run a module in: BF16 where its tensors, or of FP8 ones config.json,
/// are that, else F16.
DType run_dtype(const ModelDir& model, const std::string& module);

/// Throws Error, naming the tensor, where a reader that rounds a scale to dtype has nothing of it
/// left; where is the end of the message: "the 16 bits TGI casts it to".
void check_survives(std::string_view tensor, Scale scale, DType dtype, std::string_view where);

/// A tensor of values stored as dtype (F16, BF16 or F32), rounded.
Tensor scale_tensor(std::string name, Shape shape, const std::vector<Scale>& values, DType dtype);

/// Throws Error unless the calibration has an entry for every attention module of its kind in the
/// checkpoint, and the checkpoint a module for every entry.
void check_covers_model(const ModelDir& model, const Calibration& calibration);

/// What an engine does with the scales of a latent cache. Source: vLLM 0.32, whose
/// `CompressedTensorsConfig` and `Fp8Config` give MLAAttention no KV cache method; of ModelOpt
/// checkpoints, which get one, no name reaches it (tried).
constexpr std::string_view kLatentNote =
    "vLLM 0.32 drops the scales of a latent (MLA) cache and uses 1.0";

/// Adds to parts what the source says of its quantized weights, which stay as they are.
void keep_quantization(const KeptQuantization& kept, FormatParts& parts);

/// Throws Error, naming the method, where config.json says that the checkpoint is quantized
/// already.
void check_is_unquantized(const ModelDir& model);

}  // namespace kvcal
