#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/tensor.h"
#include "quant/kv_dtype.h"

namespace kvcal {

/// Type of the inputs and weights of matmul. Its output, the residual stream, norms and softmax are
/// float32.
enum class ComputeType : uint8_t { kFloat32, kBFloat16, kFloat16 };
constexpr size_t bytes_of(ComputeType type) {
  return type == ComputeType::kFloat32 ? 4 : 2;
}
std::string_view name_of(ComputeType type);

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh };

class Backend;

/// Memory of a backend: host memory for CPUs, device memory for GPUs. At least 64-byte aligned.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* owner, std::byte* data, size_t size) : owner_(owner), data_(data), size_(size) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Backend* owner_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A weight [out, in] in the layout the backend multiplies fastest. Made by Backend::pack; must not
/// outlive the backend.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t out_features = 0;
  int64_t in_features = 0;
  size_t bytes = 0;  ///< memory it takes
};

/// A run of consecutive tokens that belong together in a packed batch. Query i of a segment is the
/// token at position kv_count - q_count + i of its sequence and attends to keys [0, that position].
struct Segment {
  int64_t q_begin = 0, q_count = 0;    ///< rows of q and out
  int64_t kv_begin = 0, kv_count = 0;  ///< rows of the KV storage
};

struct EmbedArgs {
  const TensorView& table;       ///< [vocab, hidden] F32, F16 or BF16, host memory
  std::span<const int32_t> ids;  ///< host; each in [0, vocab)
  float multiplier = 1.0f;
  float* out = nullptr;  ///< [ids, hidden]
};

struct RmsNormArgs {
  const float* x = nullptr;       ///< [rows, width]
  const float* weight = nullptr;  ///< [width]
  float epsilon = 0.0f;
  int64_t rows = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width] of out_type; may not alias x
};

struct MatmulArgs {
  const void* x = nullptr;  ///< [rows, in_features] of the type the weight was packed for
  const PackedMatrix& weight;
  const float* bias = nullptr;  ///< [out_features], or null
  bool accumulate = false;      ///< out += x·Wᵀ (residual) instead of out = x·Wᵀ
  int64_t rows = 0;
  float* out = nullptr;    ///< [rows, out_features] with row stride out_stride
  int64_t out_stride = 0;  ///< in floats; 0 means out_features
};

/// float32 heads inside rows: element (t, h, d) is at data[t * row_stride + h * head_dim + d].
struct HeadsView {
  float* data = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, row_stride = 0;
};

struct RopeArgs {
  HeadsView x;                         ///< rotated in place
  const int32_t* positions = nullptr;  ///< [tokens] rows of the tables
  const float* cos =
      nullptr;  ///< [max positions, rotary_dim / 2], attention factor already multiplied in
  const float* sin = nullptr;
  int64_t rotary_dim = 0;    ///< first dimensions of each head that turn; even
  bool interleaved = false;  ///< pairs (2i, 2i+1) instead of halves (i, i + rotary_dim / 2)
};

/// Extremes of one head in one segment. first_nonfinite: its first token (within the segment) that
/// holds NaN or Inf, else -1; min and max are then over the finite values. Without any finite value
/// min is +infinity and max -infinity. A zero is +0.
struct ObservedRange {
  float min = 0.0f, max = 0.0f;
  int32_t first_nonfinite = -1;
};

struct ObserveKvArgs {
  HeadsView x;
  std::span<const Segment> segments;  ///< host; q_begin and q_count name the rows of x
  ObservedRange* ranges = nullptr;    ///< backend memory, [segments, heads], written
  uint64_t* histogram = nullptr;  ///< backend memory, [heads, MagnitudeHistogram::kBins], added to
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

struct AttentionArgs {
  const float* q = nullptr;  ///< [q rows, heads, head_dim] with row stride q_row_stride (floats)
  int64_t q_row_stride = 0;
  const void* k = nullptr;  ///< [kv rows, kv_heads, head_dim] of kv_dtype, contiguous
  const void* v = nullptr;
  KvDType kv_dtype = KvDType::kFloat32;
  const float* k_scales = nullptr;  ///< [kv_heads] for FP8: real = scale * code
  const float* v_scales = nullptr;
  std::span<const Segment> segments;  ///< host
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float softmax_scale = 1.0f;
  int64_t sliding_window =
      0;  ///< keys further back than window - 1 positions are not seen; 0: all are
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [q rows, heads * head_dim] of out_type
};

struct GatedActivationArgs {
  const float* gate_up = nullptr;  ///< [rows, 2 * width]: gate, then up
  Activation activation = Activation::kSilu;
  int64_t rows = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, width]: activation(gate) * up
};

/// The list of operations, and the only contract between the model and what computes it. Pointers
/// are backend memory unless said otherwise. Every operation gives the same bytes whatever the
/// number of threads, and a row's result does not depend on which other rows stand beside it.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  ///< "cpu", "reference"
  virtual std::string description()
      const = 0;  ///< for the manifest: "cpu (avx512_bf16, 2 threads)"
  virtual bool supports(ComputeType type) const = 0;
  /// What --compute-dtype auto means here.
  virtual ComputeType preferred_compute_type() const = 0;
  /// Tokens that should go through a layer together: enough to keep every thread busy, few enough
  /// that the activations between two operations stay near.
  virtual int64_t preferred_batch_tokens() const = 0;

  virtual Buffer allocate(size_t bytes) = 0;  ///< throws Error when there is no memory
  virtual void free(std::byte* data, size_t bytes) noexcept = 0;
  virtual void copy_in(std::span<const std::byte> host, std::byte* data) = 0;
  virtual void copy_out(const std::byte* data, std::span<std::byte> host) = 0;
  virtual void fill_zero(std::byte* data, size_t bytes) = 0;

  /// Concatenates F32, F16 or BF16 matrices [n_i, in] along their rows and packs them for type.
  virtual std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts,
                                             ComputeType type) = 0;

  virtual void embed(const EmbedArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  virtual void observe_kv(const ObserveKvArgs& args) = 0;
  virtual void store_kv(const StoreKvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void gated_activation(const GatedActivationArgs& args) = 0;
};

inline Buffer::~Buffer() {
  if (data_) owner_->free(data_, size_);
}

struct BackendOptions {
  int num_threads = 0;  ///< 0: one a core
};

}  // namespace kvcal
