// Products of FP8 inputs with FP8 weights (W8A8). Codes are multiplied; scales multiply the sums.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "quant/cache_format.h"
#include "quant/cache_type.h"
#include "quant/fp8.h"
#include "quant/host_device.h"

namespace kvcal {

/// Keys that sparse attention reads beside the causal mask: one bit a key. Bit i % 32 of word i /
/// 32 of a query's row is set where the query reads key i, counted from the first key of its
/// segment.
struct KeySelection {
  const uint32_t* words = nullptr;  ///< [q rows, row_words] backend memory; null: all keys are read
  int64_t row_words = 0;

  KVCAL_HD static constexpr int64_t words_of(int64_t keys) { return (keys + 31) / 32; }
  KVCAL_HD const uint32_t* row(int64_t q_row) const {
    return words ? words + q_row * row_words : nullptr;
  }
  /// row: of the query, or null.
  KVCAL_HD static bool holds(const uint32_t* row, int64_t key) {
    return !row || (row[key / 32] >> (key % 32) & 1u) != 0;
  }
};

/// Logits by the distance from a query back to a key, which add to scaled scores: the product of
/// the query's own states and the distance's row of a table; 0 from extent on. Source: transformers
/// 5.24, models/inkling `InklingRelativeLogits`.
struct RelativeLogits {
  const float* states = nullptr;  ///< [q rows, heads, rank] backend memory; null: there are none
  const float* table = nullptr;   ///< [extent, rank]
  int64_t rank = 0, extent = 0;

  /// row: q row · heads + head; distance: 0 or more.
  KVCAL_HD float at(int64_t row, int64_t distance) const {
    float sum = 0.0f;
    if (!states || distance >= extent) return sum;
    for (int64_t i = 0; i < rank; ++i) sum += states[row * rank + i] * table[distance * rank + i];
    return sum;
  }
};

/// Number that orders scores: a larger score has a larger one. Zeros are equal.
KVCAL_HD inline uint32_t order_of_score(float score) {
  if (score != score) return 0xffffffffu;
  const uint32_t bits = bits_of(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Type of the inputs and weights of matmul. Its output, the residual stream, norms and softmax are
/// float32.
enum class ComputeType : uint8_t { kFloat32, kBFloat16, kFloat16 };
constexpr size_t bytes_of(ComputeType type) {
  return type == ComputeType::kFloat32 ? 4 : 2;
}
std::string_view name_of(ComputeType type);

/// Source: torch.nn.functional. kGeluTanh is gelu's "tanh" approximation, kQuickGelu
/// x·sigmoid(1.702 x), kSquaredRelu relu(x)².
enum class Activation : uint8_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kQuickGelu,
  kRelu,
  kSquaredRelu,
  kXielu,
  kTanh,
  kSitu
};

/// An activation with its numbers. kXielu: alpha_p · x² + beta · x where x > 0, else alpha_n ·
/// (exp(min(x, eps)) - 1 - x) + beta · x. Source: transformers 5.23 `XIELUActivation`, whose alphas
/// are the softplus of what it stores, and for alpha_n that and beta. kSitu: beta · tanh(x / beta)
/// · sigmoid(x). Source: llm-compressor 0.14, modeling/kimi_k3 `SituAndMul`.
struct ActivationFunction {
  Activation kind = Activation::kSilu;
  /// gpt-oss, gated only: the gate is at most limit, up within ±limit, and up + 1 is the factor. 0:
  /// none.
  float limit = 0.0f;
  /// Step 3.5: the activated gate is at most limit, and up is the factor.
  bool limits_activated = false;
  /// DeepSeek-V4: false, where up itself is the factor behind the limits of gpt-oss.
  bool adds_one = true;
  float gate_multiplier = 1.0f;  ///< of the gate before all else; gated only
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.0f, eps = 0.0f;  ///< kXielu; beta also kSitu
  /// kSitu, gated only: up becomes up_softcap · tanh(up / up_softcap). 0: up itself is the factor.
  float up_softcap = 0.0f;
};

/// A weight [out, in] in the backend's fastest layout. Made by Backend::pack; must not outlive the
/// backend.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t out_features = 0;
  int64_t in_features = 0;
  size_t bytes = 0;  ///< memory of the matrix
};

/// Consecutive tokens of one sequence in a packed batch. Query i of a segment is the token at
/// position kv_count - q_count + i of its sequence and attends to keys [0, that position].
struct Segment {
  int64_t q_begin = 0, q_count = 0;    ///< rows of q and out
  int64_t kv_begin = 0, kv_count = 0;  ///< rows of the KV storage
};

/// Slot for the largest finite magnitude of an operation's output (a Linear's input), updated by
/// the kernel that writes it. NaN and Inf are counted, not folded in. Both pointers are backend
/// memory; null: not requested.
struct AmaxSlot {
  float* amax = nullptr;
  uint64_t* nonfinite = nullptr;
  explicit operator bool() const { return amax != nullptr; }
};

struct EmbedArgs {
  const TensorView& table;       ///< [vocab, hidden] F32, F16 or BF16, host memory, read at once
  std::span<const int32_t> ids;  ///< host; each in [0, vocab)
  float multiplier = 1.0f;
  bool accumulate = false;  ///< out += instead of out = (learned positions)
  float* out = nullptr;     ///< [ids, hidden]
  /// The table's bytes in the memory of a backend that is no host; null: they are read there.
  const std::byte* resident = nullptr;
};

/// Norm of each row in float32. RMS: x / sqrt(mean(x²) + epsilon) · weight. Centered (LayerNorm):
/// the mean is subtracted first, and epsilon is added to the variance.
struct NormArgs {
  const float* x = nullptr;       ///< [rows, width]
  const float* weight = nullptr;  ///< [width]
  const float* bias = nullptr;    ///< [width], or null
  bool centered = false;
  float epsilon = 0.0f;
  int64_t rows = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width] of out_type; may not alias x
  AmaxSlot seen = {};
};

/// Residual and norm between an output projection and the next projection, in one pass: hidden +=
/// multiplier · x, or multiplier · norm(x) with output_weight; then, with next_weight, out = norm
/// of hidden. Both norms as in NormArgs.
struct ResidualNormArgs {
  const float* x = nullptr;              ///< [rows, width]
  const float* output_weight = nullptr;  ///< [width], or null
  float multiplier = 1.0f;
  float* hidden = nullptr;             ///< [rows, width], added to
  const float* next_weight = nullptr;  ///< [width], or null
  const float* next_bias = nullptr;    ///< [width], or null
  bool centered = false;
  float epsilon = 0.0f;
  int64_t rows = 0, width = 0;
  float* scratch = nullptr;  ///< [rows, width]; contents afterwards are unspecified
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width] of out_type; may alias neither x nor hidden
  AmaxSlot seen = {};   ///< of out
};

struct MatmulArgs {
  const void* x = nullptr;  ///< [rows, in_features] of the type the weight was packed for
  const PackedMatrix& weight;
  const float* bias = nullptr;  ///< [out_features], or null
  bool accumulate = false;      ///< out += x·Wᵀ (residual) instead of out = x·Wᵀ
  int64_t rows = 0;
  float* out = nullptr;    ///< [rows, out_features] with row stride out_stride
  int64_t out_stride = 0;  ///< in floats; 0 means out_features
  /// A decoding step: rows may differ in their last bits from those of a larger batch, if that is
  /// faster.
  bool is_decoding = false;

  int64_t out_row_stride() const { return out_stride == 0 ? weight.out_features : out_stride; }
};

/// float32 heads inside rows: element (t, h, d) is at data[t * row_stride + h * head_dim + d].
struct HeadsView {
  float* data = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, row_stride = 0;
};

/// NormArgs' arithmetic on every head of every token, in place.
struct NormHeadsArgs {
  HeadsView x;
  const float* weight = nullptr;  ///< [head_dim], or [heads, head_dim] with weight_per_head
  const float* bias = nullptr;    ///< as weight, or null
  bool weight_per_head = false;
  bool centered = false;
  float epsilon = 0.0f;
};

/// out(t, h, d) = x(t, h, d) for d < width. Each view has its own head_dim; a single head of x is
/// copied to every head of out. Input and output may not overlap.
struct CopyHeadsArgs {
  HeadsView x;
  HeadsView out;  ///< as many tokens as x
  int64_t width = 0;
};

struct RopeArgs {
  HeadsView x;                         ///< rotated in place
  const int32_t* positions = nullptr;  ///< [tokens] rows of the tables
  const float* cos =
      nullptr;  ///< [max positions, rotary_dim / 2], attention factor already multiplied in
  const float* sin = nullptr;
  int64_t rotary_dim = 0;    ///< first dimensions of each head that rotate; even
  bool interleaved = false;  ///< pairs (2i, 2i+1) instead of halves (i, i + rotary_dim / 2)
};

/// Extremes of one head in one segment. first_nonfinite: first token (within the segment) with NaN
/// or Inf, else -1; min and max are over the finite values. Without any finite value min is
/// +infinity and max -infinity. A zero is +0.
struct ObservedRange {
  float min = 0.0f, max = 0.0f;
  int32_t first_nonfinite = -1;
};
/// The range of a segment without tokens.
inline constexpr ObservedRange kEmptyRange{.min = std::numeric_limits<float>::infinity(),
                                           .max = -std::numeric_limits<float>::infinity(),
                                           .first_nonfinite = -1};

struct ObserveKvArgs {
  HeadsView x;
  std::span<const Segment> segments;  ///< host; q_begin and q_count name the rows of x
  ObservedRange* ranges = nullptr;    ///< backend memory, [segments, heads], written
  uint64_t* histogram = nullptr;      ///< backend memory, [heads, MagnitudeHistogram::kBins], added
                                      ///< to; may be null
};

/// Extremes and magnitudes of whole rows: as ObserveKvArgs, with rows instead of heads.
struct ObserveRowsArgs {
  const void* x = nullptr;  ///< [rows, width] of type
  ComputeType type = ComputeType::kFloat32;
  int64_t rows = 0, width = 0;
  std::span<const Segment> segments;  ///< host; q_begin and q_count name the rows
  ObservedRange* ranges = nullptr;    ///< backend memory, [segments], written
  uint64_t* histogram = nullptr;      ///< [MagnitudeHistogram::kBins], added to; may be null
};

struct StoreKvArgs {
  HeadsView x;
  KvDType dtype = KvDType::kFloat32;
  const float* scales =
      nullptr;          ///< [heads] for FP8: codes = encode(x / scale), saturating; else unused
  void* out = nullptr;  ///< [tokens, heads, head_dim] of dtype, contiguous
  uint64_t* saturated =
      nullptr;  ///< [heads], added to: finite values with |x / scale| > max; may be null
};

/// K or V in EnterCacheArgs: observed as in ObserveKvArgs where ranges is given, then stored as in
/// StoreKvArgs where out is given.
struct CacheSide {
  HeadsView x;  ///< contents afterwards are unspecified
  ObservedRange* ranges = nullptr;
  uint64_t* histogram = nullptr;
  KvDType dtype = KvDType::kFloat32;
  const float* scales = nullptr;
  void* out = nullptr;
  uint64_t* saturated = nullptr;
};

/// One pass over new K and V: RoPE, extremes and histograms of each head, and storage in the cache.
/// Gives the bytes of rope, observe_kv and store_kv in sequence. Afterwards the heads to rotate are
/// rotated, or as before where Backend::leaves_entered_heads.
struct EnterCacheArgs {
  CacheSide k = {}, v = {};
  RopeArgs rope = {};                      ///< x: the heads of k or v to rotate; x.data null: none
  std::span<const Segment> segments = {};  ///< host; needed for observation
  /// Backend memory, read when the operation runs: the first row of out to store to. Null: 0.
  const int64_t* first_row = nullptr;
};

/// Dequantizes stored heads: real = scale * code for FP8.
struct LoadKvArgs {
  const void* x = nullptr;  ///< [rows, heads, head_dim] of dtype, contiguous
  KvDType dtype = KvDType::kFloat32;
  const float* scales = nullptr;  ///< [heads] for FP8
  int64_t rows = 0, heads = 0, head_dim = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, heads, head_dim] of out_type
};

/// x becomes what attention reads of it from a cache of a simulated format, in place.
struct SimulateCacheArgs {
  HeadsView x;
  CacheFormat format = {};
  const float* scales = nullptr;   ///< [heads], where the format needs scales
  bool scale_per_channel = false;  ///< scales are [heads, head_dim]
  bool is_value = false;           ///< as CachedHead has it
  int64_t rotated = 0;
  uint64_t* saturated = nullptr;  ///< [heads], added to: finite values that are clipped; or null

  KVCAL_HD CachedHead head(int64_t token, int64_t head) const {
    return {.x = x.data + token * x.row_stride + head * x.head_dim,
            .size = x.head_dim,
            .scale = scales && !scale_per_channel ? scales[head] : 1.0f,
            .scales = scale_per_channel ? scales + head * x.head_dim : nullptr,
            .is_value = is_value,
            .rotated = rotated};
  }
};

/// FP8 attention rounds softmax weights while they are relative to the largest score so far, in
/// tiles of so many keys from the sequence's first. Source: vLLM 0.32, `_get_tile_size`.
inline constexpr int64_t kFp8AttentionKeys = 32;

struct AttentionArgs {
  const float* q = nullptr;  ///< [q rows, heads, head_dim] with row stride q_row_stride (floats)
  int64_t q_row_stride = 0;
  /// RoPE that q still needs, for Backend::turns_queries: x is all of q, which may be rotated
  /// afterwards. x.data null: none.
  RopeArgs rope = {};
  const void* k = nullptr;  ///< [kv rows, kv_heads, head_dim] of kv_dtype, contiguous
  const void* v = nullptr;  ///< [kv rows, kv_heads, v_head_dim]
  KvDType kv_dtype = KvDType::kFloat32;
  const float* k_scales = nullptr;  ///< [kv_heads] for FP8: real = scale * code
  const float* v_scales = nullptr;
  std::span<const Segment> segments;  ///< host
  /// Backend memory, [segments]: read when the operation runs, instead of segments. Its q rows
  /// equal theirs; their kv_count is an upper bound. Null: segments apply.
  const Segment* current_segments = nullptr;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t v_head_dim = 0;  ///< 0: head_dim
  float softmax_scale = 1.0f;
  float softcap = 0.0f;  ///< scores become softcap · tanh(score / softcap); 0: unchanged
  /// [heads] scores of an extra key without a value that every query sees, neither scaled nor
  /// capped; or null.
  const float* sinks = nullptr;
  /// [heads] ALiBi: a score grows by the head's slope times (position of the key - that of the
  /// query), neither scaled nor capped; or null.
  const float* slopes = nullptr;
  int64_t sliding_window =
      0;  ///< only keys less than window positions back are visible; 0: all are
  KeySelection selection = {};   ///< at least one visible key a query; not with current_segments
  RelativeLogits relative = {};  ///< not with softcap
  /// Type to which q, k, v and the softmax weights may be rounded before products; sums and softmax
  /// are float32.
  ComputeType product_type = ComputeType::kFloat32;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [q rows, heads * v_head_dim] of out_type
  AmaxSlot seen = {};
  /// Softmax weights become FP8 E4M3 codes of this scale (real = scale * code) before they multiply
  /// V; their sum stays unrounded. 0: weights are not rounded. The last bits of products may be
  /// those of any product_type. Source: vLLM 0.32, `kernel_unified_attention`.
  float weight_scale = 0.0f;
  /// A decoding step: a query's last bits may differ from those of a larger batch, if that is
  /// faster. They still depend only on its own sequence.
  bool is_decoding = false;

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
};

/// gated: activation(gate) · up of [gate, up] rows, else activation(x).
struct ActivationArgs {
  const float* x = nullptr;  ///< [rows, 2 * width]: gate, then up; [rows, width] where not gated
  bool gated = true;
  ActivationFunction activation = {};
  int64_t rows = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width]
  AmaxSlot seen = {};
};

/// Consecutive rows and the weight that multiplies them: those of one expert. Groups lie one behind
/// the other, and all their weights have one shape.
struct RowGroup {
  const PackedMatrix& weight;
  const float* bias = nullptr;  ///< [out_features], or null
  int64_t rows = 0;
  AmaxSlot seen = {};  ///< of the group's rows of MatmulActivateArgs::out
};

/// The matmul of every group, with the bytes of MatmulArgs.
struct MatmulGroupsArgs {
  const void* x = nullptr;                   ///< [rows of all groups, in_features] of type
  ComputeType type = ComputeType::kFloat32;  ///< that the weights were packed for
  std::span<const RowGroup> groups;          ///< host
  float* out = nullptr;                      ///< [rows of all groups, out_features]
  bool is_decoding = false;                  ///< MatmulArgs::is_decoding
};
/// The products of the groups that have rows, in their order.
std::vector<MatmulArgs> products_of(const MatmulGroupsArgs& args);

/// matmul_groups and the activation of its float32 result, which nothing else reads. See
/// ActivationArgs.
struct MatmulActivateArgs {
  const void* x = nullptr;                   ///< [rows of all groups, in_features] of type
  ComputeType type = ComputeType::kFloat32;  ///< that the weights were packed for
  /// Host; all with a bias or none. Weights [2 * width, in]: gate, then up; [width, in] not gated.
  std::span<const RowGroup> groups;
  bool gated = true;
  ActivationFunction activation = {};
  int64_t width = 0;
  /// [rows, out_features] where the backend does not fuse the activation; unspecified afterwards.
  float* scratch = nullptr;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width]
  bool is_decoding = false;

  MatmulGroupsArgs products() const {
    return {.x = x, .type = type, .groups = groups, .out = scratch, .is_decoding = is_decoding};
  }
};
/// The activations behind the products: groups that share a slot, or have none, go together.
std::vector<ActivationArgs> activations_of(const MatmulActivateArgs& args);

/// out += multiplier · x.
struct AddArgs {
  const float* x = nullptr;  ///< [count]
  float multiplier = 1.0f;
  int64_t count = 0;
  float* out = nullptr;  ///< [count]
};

/// x ·= factor.
struct ScaleArgs {
  HeadsView x;
  float factor = 1.0f;
};

/// x = min(max(x, -limit), limit). NaN stays NaN.
struct ClampArgs {
  HeadsView x;
  float limit = 0.0f;
};

/// out row i = x row rows[i]: the tokens routed to some experts.
struct GatherRowsArgs {
  const void* x = nullptr;  ///< [*, width] of type
  ComputeType type = ComputeType::kFloat32;
  const int32_t* rows = nullptr;  ///< [count]
  int64_t count = 0, width = 0;
  void* out = nullptr;  ///< [count, width] of type
};

/// out row i += weights[p - first] · x row (p - first), for each of the row's places p in turn that
/// lies in [first, first + count): the results of some experts, which x holds.
struct CombineRowsArgs {
  const float* x = nullptr;         ///< [count, width]
  const int32_t* places = nullptr;  ///< [rows, per_row]; null: row i has the place i alone
  const float* weights = nullptr;   ///< [count]; null: all are 1
  int64_t first = 0, count = 0;
  int64_t rows = 0, per_row = 1, width = 0;
  float* out = nullptr;  ///< [rows, width]
};

/// amax = max(amax, largest finite magnitude of x). NaN and Inf are counted, not folded in.
struct ObserveAmaxArgs {
  const void* x = nullptr;  ///< [count] of type
  ComputeType type = ComputeType::kFloat32;
  int64_t count = 0;
  float* amax = nullptr;          ///< one float, folded into
  uint64_t* nonfinite = nullptr;  ///< one count, added to
};

/// Quantizes a Linear's input: encode(x / scale), saturating. Scales are given, or each row gets
/// its own from its largest finite magnitude by the rule of scale_from (quant/scale.h). NaN stays
/// NaN, infinity becomes the largest code.
struct QuantizeRowsArgs {
  const void* x = nullptr;  ///< [rows, width] of type
  ComputeType type = ComputeType::kFloat32;
  int64_t rows = 0, width = 0;
  fp8::Format format = fp8::Format::kE4m3Fn;
  const float* scales = nullptr;  ///< one float, or [rows] with scale_per_row; null: row_scales
  bool scale_per_row = false;
  float* row_scales = nullptr;    ///< [rows], written; only where scales is null
  uint8_t* out = nullptr;         ///< [rows, width]; may not overlap x
  uint64_t* saturated = nullptr;  ///< one count, added to: finite values with |x / scale| > max; or
                                  ///< null
};

/// out[r, n] (+)= (sum_k x[r, k] · weight[n, k]) · x_scale[r] · weight_scale[n] + bias[n], with
/// decoded codes, summed in float32.
struct Fp8MatmulArgs {
  const uint8_t* x = nullptr;       ///< [rows, in_features] E4M3FN codes
  const float* x_scales = nullptr;  ///< one float, or [rows] with scale_per_row
  bool scale_per_row = false;
  const PackedMatrix& weight;   ///< from pack_fp8
  const float* bias = nullptr;  ///< [out_features], or null
  bool accumulate = false;      ///< out += instead of out =
  int64_t rows = 0;
  float* out = nullptr;      ///< [rows, out_features] with row stride out_stride
  int64_t out_stride = 0;    ///< in floats; 0 means out_features
  bool is_decoding = false;  ///< MatmulArgs::is_decoding

  int64_t out_row_stride() const { return out_stride == 0 ? weight.out_features : out_stride; }
};

}  // namespace kvcal
