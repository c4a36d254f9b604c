#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "backend/operations.h"

namespace kvcal {

/// float32 rows inside larger rows, such as a slice of a projection: row t starts at data + t *
/// row_stride.
struct RowsView {
  const float* data = nullptr;
  int64_t row_stride = 0;
};

// The three operations below walk each segment from its first row to its last (q_begin and q_count
// name the rows; the KV fields are unused). A state is float32 and belongs to the segment of the
// same index. It is read first and afterwards holds the state after the last row, so a continued
// sequence gets the bytes of one uninterrupted run. Null state: it starts at zero and is discarded.
// Rows outside the segments do not change.

/// Depthwise convolution over the kernel rows that end at each row: out(t, c) = sum_j weight(c, j)
/// · x(t - kernel + 1 + j, c) + bias(c), then x·sigmoid(x) with silu. Rows before the segment come
/// from the state. Source: transformers nemotron_h and qwen3_next, `causal_conv1d_fn` and
/// `causal_conv1d_update`.
struct CausalConvArgs {
  RowsView x;                     ///< [rows, channels]
  const float* weight = nullptr;  ///< [channels, kernel]
  const float* bias = nullptr;    ///< [channels], or null
  bool silu = false;
  std::span<const Segment> segments;  ///< host
  int64_t channels = 0, kernel = 0;
  float* state = nullptr;  ///< [segments, kernel - 1, channels]: the rows before; or null
  float* out = nullptr;    ///< [rows, channels] with row stride out_stride; may not overlap x
  int64_t out_stride = 0;  ///< in floats; 0 means channels

  int64_t out_row_stride() const { return out_stride == 0 ? channels : out_stride; }
};

/// The selective scan of Mamba 1 and 2. With s = softplus(dt + dt_bias), clamped to [dt_min,
/// dt_max]: S = exp(s · A) · S + s · x Bᵀ; out = S C + D · x. Head h uses group h / (heads /
/// groups). Mamba 1 has one head a channel, head_dim 1, one group, and its own A for every state.
/// Source: transformers nemotron_h `mamba2_chunk_scan`, jamba `mamba_selective_scan`.
struct SsmScanArgs {
  RowsView x;                      ///< [rows, heads, head_dim]
  RowsView dt;                     ///< [rows, heads], before the softplus
  const float* dt_bias = nullptr;  ///< [heads], or null
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();
  const float* a = nullptr;  ///< [heads], or [heads, state_dim] with a_per_state; negative
  bool a_per_state = false;
  RowsView b, c;                      ///< [rows, groups, state_dim]
  const float* d = nullptr;           ///< [heads], or null
  std::span<const Segment> segments;  ///< host
  int64_t heads = 0, head_dim = 0, groups = 0, state_dim = 0;
  float* state = nullptr;  ///< [segments, heads, head_dim, state_dim], or null
  float* out = nullptr;    ///< [rows, heads, head_dim] with row stride out_stride; may be x's rows
  int64_t out_stride = 0;  ///< in floats; 0 means heads * head_dim

  int64_t out_row_stride() const { return out_stride == 0 ? heads * head_dim : out_stride; }
};

/// The gated delta rule: S = exp(g) · S; d = beta · (v - Sᵀk); S = S + k dᵀ; out = Sᵀq. q is scaled
/// by k_dim^-0.5; with normalize, q and k are first divided by sqrt(sum of squares + 1e-6). v head
/// h uses k head h / (v_heads / k_heads). With decay_rate, g becomes decay_rate · softplus(g +
/// g_bias), and with logistic_beta, beta becomes beta_range · sigmoid(beta), as in Qwen3-Next. With
/// decay_per_key, each row of S fades by a g of its own. With decay_floor, which is negative, g
/// becomes decay_floor · sigmoid(-decay_rate · (g + g_bias)) instead, as in Ling 3. Source:
/// transformers qwen3_next, `torch_recurrent_gated_delta_rule`, kimi_linear,
/// `recurrent_kimi_delta_attention`, and bailing_hybrid, `BailingHybridForgetGate`.
struct DeltaScanArgs {
  RowsView q, k;                      ///< [rows, k_heads, k_dim]
  RowsView v;                         ///< [rows, v_heads, v_dim]
  RowsView g;                         ///< [rows, v_heads]: logarithm of the decay; with
                                      ///< decay_per_key [rows, v_heads, k_dim]
  RowsView beta;                      ///< [rows, v_heads]
  const float* decay_rate = nullptr;  ///< [v_heads], negative; or null: g is used as it is
  const float* g_bias = nullptr;      ///< as a row of g, or null; only with decay_rate
  float decay_floor = 0.0f;           ///< 0: none; only with decay_rate
  bool decay_per_key = false;
  bool logistic_beta = false;
  float beta_range = 1.0f;  ///< 2: a state may change its sign; only with logistic_beta
  bool normalize = true;
  std::span<const Segment> segments;  ///< host
  int64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  float* state = nullptr;  ///< [segments, v_heads, k_dim, v_dim], or null
  float* out = nullptr;    ///< [rows, v_heads, v_dim] with row stride out_stride; may be v's rows
  int64_t out_stride = 0;  ///< in floats; 0 means v_heads * v_dim

  int64_t out_row_stride() const { return out_stride == 0 ? v_heads * v_dim : out_stride; }
};

/// Function of the gate that multiplies x: sigmoid(gate), silu(gate) = gate · sigmoid(gate), the
/// gate itself, or softplus(gate) = log(1 + e^gate).
enum class GateFunction : uint8_t { kSigmoid, kSilu, kIdentity, kSoftplus };

/// Gated RMS norm of each group of a row. gate_first: rms(x · gated) · weight (Mamba 2:
/// transformers zamba2 and nemotron_h `RMSNormGated`); else rms(x) · weight · gated (qwen3_next).
struct GatedNormArgs {
  RowsView x, gate;               ///< [rows, groups, width]
  const float* weight = nullptr;  ///< [width], or [groups, width] with weight_per_group
  bool weight_per_group = false;
  bool gate_first = false;
  GateFunction function = GateFunction::kSilu;
  float epsilon = 0.0f;
  int64_t rows = 0, groups = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, groups, width] of out_type; may not overlap x or gate
  AmaxSlot seen = {};
};

/// out(t, h, i) = x(t, h, i) times the function of gate(t, h, i), or of gate(t, h) with
/// gate_per_head. Heads of the gate may have a stride of their own, as in a projection that
/// alternates query and gate of each head.
struct MultiplyGateArgs {
  RowsView x;                    ///< [rows, heads, width]
  RowsView gate;                 ///< element (t, h, i) at h * gate_head_stride + i of row t; a
                                 ///< row_stride of 0: every row has the same gate
  int64_t gate_head_stride = 0;  ///< 0 means gate_width()
  bool gate_per_head = false;    ///< one number a head: element (t, h) at h * gate_head_stride
  GateFunction function = GateFunction::kSigmoid;
  int64_t rows = 0, heads = 1, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, heads, width] of out_type; may be x where both are float32 and
                        ///< x's rows follow each other
  AmaxSlot seen = {};

  int64_t gate_width() const { return gate_per_head ? 1 : width; }
  int64_t gate_stride() const { return gate_head_stride == 0 ? gate_width() : gate_head_stride; }
};

/// Mixes parallel residual streams of the same tokens, with coefficients a token: out(p, t) =
/// x(p, t) + sum over q of coefficients(t, p · inputs + q) · added(q, t). Source: transformers
/// 5.23, models/gemma3n `Gemma3nTextAltUp`, whose prediction and correction this is.
struct MixStreamsArgs {
  const float* x = nullptr;             ///< [streams, rows, width]; null: zeros
  const float* added = nullptr;         ///< [inputs, rows, width]; may be x
  const float* coefficients = nullptr;  ///< [rows, streams * inputs]
  int64_t streams = 0, inputs = 0, rows = 0, width = 0;
  float* out = nullptr;  ///< [streams, rows, width]; may overlap neither x nor added
};

/// Makes the weights of hyper-connections (mHC), which collapse parallel residual streams to the
/// input of attention or an MLP, and expand its output to the streams behind it. With row = [a of
/// each stream, b of each, c of each pair (from, to)] of x, times scale by part, plus base:
/// collapse = sigmoid(a) + epsilon; expand of the output = 2 · sigmoid(b); and of the streams
/// before, the softmax of c over `to`, plus epsilon, which Sinkhorn's iterations then bring near
/// sums of 1: divided by the sums over `from`, and iterations - 1 times by those over `to` and over
/// `from`, each sum plus epsilon. Source: transformers 5.24, models/deepseek_v4
/// `DeepseekV4HyperConnection` and models/glm5_next `Glm5NextTextHyperConnection`.
struct ConnectStreamsArgs {
  const float* x = nullptr;      ///< [rows, width()]
  const float* scale = nullptr;  ///< [3]
  const float* base = nullptr;   ///< [width()]
  int64_t rows = 0, streams = 0;
  int64_t iterations = 0;     ///< 1 or more
  float epsilon = 0.0f;       ///< 0 or more
  float* collapse = nullptr;  ///< [rows, streams]: coefficients of mix_streams to one stream
  float* expand = nullptr;    ///< [rows, streams, streams + 1]: of a stream behind, the weights of
                              ///< those before, then of the output; likewise

  int64_t width() const { return (2 + streams) * streams; }
};

/// Attends over parallel residual streams of the same tokens: out(t) = the sum over s of p(t, s) ·
/// x(s, t), where p(t) is the softmax over s of the product of weight and x(s, t) / sqrt(mean(x(s,
/// t)²) + epsilon). Source: llm-compressor 0.14, modeling/kimi_k3 `_apply_attn_res`, whose weight
/// is that of the norm times that of the projection.
struct AttendStreamsArgs {
  static constexpr int64_t kMaxStreams = 64;

  const float* x = nullptr;       ///< [streams, rows, width]
  const float* weight = nullptr;  ///< [width]
  float epsilon = 0.0f;           ///< 0 or more
  int64_t streams = 0;            ///< 1 to kMaxStreams
  int64_t rows = 0, width = 0;
  float* out = nullptr;  ///< [rows, width]; may be the first stream
};

/// Gates a token's value for each residual stream, by how a key agrees with the stream: with a =
/// the product of key(t, s) and stream(t, s) times scale, out(t, s) = sigmoid(±sqrt(max(|a|,
/// floor))) · value(t), where the root has the sign of a and is 0 for 0. Source: transformers 5.24,
/// models/qwen4_exp `Qwen4ExpTextPLELayer`.
struct GateByKeysArgs {
  const float* key = nullptr;     ///< [rows, streams, width]
  const float* stream = nullptr;  ///< [rows, streams, width]
  const float* value = nullptr;   ///< [rows, width]
  float scale = 1.0f, floor = 0.0f;
  int64_t rows = 0, streams = 0, width = 0;
  float* out = nullptr;  ///< [rows, streams, width]; overlaps no input

  /// The gate that a product of key and stream gives.
  KVCAL_HD float gate(float product) const {
    const float a = product * scale, size = a < 0.0f ? -a : a;
    const float root = sqrtf(size < floor ? floor : size);
    return 1.0f / (1.0f + expf(a > 0.0f ? -root : a < 0.0f ? root : a));  // of 0, and of NaN, a
  }
};

/// Gives each row of x the magnitude of target's: x *= rms(target) / sqrt(max(mean(x²), floor)).
struct MatchMagnitudeArgs {
  const float* target = nullptr;  ///< [rows, width]
  float* x = nullptr;             ///< [rows, width]
  float floor = 0.0f;             ///< above 0
  int64_t rows = 0, width = 0;
};

/// Keeps of each row what exceeds its mean by more than `deviations` standard deviations, and
/// subtracts that border from it; the rest becomes 0. NaN stays NaN. Source: transformers 5.23,
/// models/gemma3n `Gemma3nTextMLP._gaussian_topk`.
struct KeepOutliersArgs {
  float* x = nullptr;  ///< [rows, width] with row stride row_stride (floats)
  int64_t rows = 0, width = 0, row_stride = 0;
  float deviations = 0.0f;
};

}  // namespace kvcal
