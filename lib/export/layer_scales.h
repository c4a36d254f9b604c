#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/tensor.h"
#include "export/writer.h"
#include "quant/calibration.h"

namespace kvcal {

/// AttentionCalibration::scales_at, with k or v for "{}".
std::string module_of_side(std::string scales_at, char letter);

/// The layers of the model itself, for formats that have no place for a draft layer.
std::span<const AttentionCalibration> layers_of_model(const Calibration& calibration);

/// Scale that K and V of a layer share in formats that hold only one: the largest of both and of
/// all heads, so that nothing saturates that did not before. The layer must not be ignored.
Scale shared_scale(const AttentionCalibration& layer);

/// Largest scale of K or of V, so that no head saturates that did not before. scales must not be
/// empty.
Scale largest_of(const std::vector<Scale>& scales);

/// Whether shared_scale would lose more than one value a layer.
bool has_head_scales(const Calibration& calibration);

/// Whether queries are quantized too.
bool has_query_scales(const Calibration& calibration);

/// Modules without scales, in layer order.
std::vector<std::string> ignored_modules(const Calibration& calibration);

/// The first tensor of a module, by name. Throws Error where it has none.
const TensorView& first_tensor_of(const ModelDir& model, const std::string& module);

/// Dtype of an attention module's first tensor, by name, which llm-compressor gives the scales.
/// Throws Error where it is not F16, BF16 or F32.
DType module_dtype(const ModelDir& model, const std::string& module);

/// 16-bit dtype in which engines run a module: BF16 where its tensors (for FP8 tensors,
/// config.json) are BF16, else F16.
DType run_dtype(const ModelDir& model, const std::string& module);

/// Throws Error, naming the tensor, where the scale rounds to zero in dtype. where ends the
/// message: "the 16 bits TGI casts it to".
void check_survives(std::string_view tensor, Scale scale, DType dtype, std::string_view where);

/// A tensor of values stored as dtype (F16, BF16 or F32), rounded.
Tensor scale_tensor(std::string name, Shape shape, const std::vector<Scale>& values, DType dtype);

/// Throws Error unless the calibration has exactly one entry for every attention module of its kind
/// in the checkpoint.
void check_covers_model(const ModelDir& model, const Calibration& calibration);

/// Note for the user about engines and the scales of a latent cache. Source: vLLM 0.32, whose
/// `CompressedTensorsConfig` and `Fp8Config` give MLAAttention no KV cache method; ModelOpt's
/// config gives it one, but no tensor name reaches it (tried).
constexpr std::string_view kLatentNote =
    "vLLM 0.32 drops the scales of a latent (MLA) cache and uses 1.0";

/// Adds to parts the source's description of its quantized weights, which stay as they are.
void keep_quantization(const KeptQuantization& kept, FormatParts& parts);

/// Throws Error, naming the method, where config.json says that the checkpoint is already
/// quantized.
void check_is_unquantized(const ModelDir& model);

}  // namespace kvcal
