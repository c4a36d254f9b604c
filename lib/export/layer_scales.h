#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/tensor.h"
#include "export/writer.h"
#include "quant/calibration.h"
#include "stored/stored_format.h"

namespace kvcal {

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

/// So many scales, of channels head by head or of heads, from one, one a head or as many.
std::vector<Scale> spread_scales(const std::vector<Scale>& scales, int64_t wanted);

/// "heads", or "channels" where these have scales: what a note says was merged.
std::string_view merged_name(const Calibration& calibration);

/// Whether queries are quantized too.
bool has_query_scales(const Calibration& calibration);

/// Modules without scales, in layer order.
std::vector<std::string> ignored_modules(const Calibration& calibration);

/// The first tensor of a module, by name. Throws Error where it has none.
const TensorView& first_tensor_of(const ModelDir& model, const std::string& module);

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
void keep_quantization(const SourceQuantization& kept, FormatParts& parts);

/// Throws Error, naming the method, where config.json says that the checkpoint is already
/// quantized.
void check_is_unquantized(const ModelDir& model);

/// Scales of one module, each raised to the largest that the same tensor-parallel engine holds:
/// such an engine may use one scale for all of its heads. Rank r of num_ranks holds heads [r * n,
/// (r + 1) * n); with more ranks than heads, several ranks hold the same head. Unchanged for one
/// rank or one scale. Throws Error where the heads cannot be divided.
std::vector<Scale> tied_over_ranks(const std::vector<Scale>& scales, int64_t num_ranks);

/// "<module>.k_scale" and ".v_scale" of every layer that is not ignored; where queries are
/// quantized also ".q_scale" and the three ".{q,k,v}_zero_point".
std::vector<std::string> attention_tensor_names(const Calibration& calibration);

/// The tensors of those names. Scales are [1], or [heads, 1, 1] with strategy attn_head, tied over
/// input.tp_size ranks, in float32 or in the dtype of the module's weights. Zero points are F8_E4M3
/// zeros of the same shape, which loaders of attention groups look for. Source: compressed-tensors
/// `initialize_attn_qparams`.
std::vector<Tensor> attention_tensors(const ExportInput& input);

/// Throws Error where rounding a scale to the dtype of its module's weights makes it subnormal: it
/// would lose precision, and so would every value that it multiplies.
void check_attention_scales_fit(const ExportInput& input);

/// Arguments that vLLM needs for ignored layers, as a sentence; nullopt where no layer is ignored.
std::optional<std::string> ignored_layers_note(const Calibration& calibration);

/// Name of the file with the arguments that vLLM needs for ignored layers.
inline constexpr std::string_view kVllmArgumentsName = "vllm.yaml";

/// Content of kVllmArgumentsName; nullopt where no layer is ignored. vLLM reads only from its
/// arguments which layers keep a 16-bit cache. Source: vLLM 0.32,
/// `CacheConfig.kv_cache_dtype_skip_layers`, `FlexibleArgumentParser.load_config_file`.
std::optional<std::string> vllm_arguments(const Calibration& calibration);

/// Writer of a format whose checkpoints hold one float32 scale for K and one for V of a layer.
class ScalarWriter : public Writer {
 public:
  /// weights: names of the scales of FP8 weights, with the title of the format.
  ScalarWriter(std::string_view format, const WeightScaleNames& weights)
      : format_(format), weights_(weights) {}

  /// Also throws Error where the source's weights are quantized in another format.
  void check(const ExportInput& input) const override;
  /// The scales of K and V of every layer that is not ignored, F32: the largest over the heads, so
  /// that nothing saturates that did not before. Where the format has queries and they are
  /// quantized, also theirs, and kProbScale of softmax weights: their amax is 1 in every layer,
  /// that of the first token's on itself, so the scale is 1/448. Source: vLLM 0.32 `Fp8Config` and
  /// `QuarkConfig`, get_cache_scale_mapper, which know the latter below self_attn only. Also names
  /// of the weights' scales, and vllm.yaml where layers are ignored.
  FormatParts parts(const ExportInput& input) const override;
  /// One scale of K and one of V.
  WrittenScales held(const AttentionCalibration& layer, int64_t) const override;
  /// Notes on values that the format does not keep and on options that vLLM needs.
  std::vector<std::string> notes(const ExportInput& input) const override;

 protected:
  /// Names of the scales of K and V; of a format with scales of queries, which has those of softmax
  /// weights too, and whose config does not turn the FP8 cache on by itself, of these as well.
  virtual const KvScaleNames& names(const ExportInput& input) const = 0;
  /// Shape of a scale.
  virtual Shape scale_shape() const { return {}; }

 private:
  void check_layer(const ExportInput& input, const AttentionCalibration& layer) const;

  std::string_view format_;  ///< as --format names it, and the source's quant_method
  const WeightScaleNames& weights_;
};

}  // namespace kvcal
