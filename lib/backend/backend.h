// Two rules hold for every implementation. A row's bytes depend on the row alone: not on the
// number of threads, nor on how samples are divided into batches. And the operation that makes a
// Linear's input also finds its extreme (AmaxSlot): norms, activations, gates and attention do
// so; only gathered and converted rows need a pass of their own. Calibration of inputs also
// needs each sample's extremes and a histogram, for which observe_rows makes a pass over the
// input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/attention_operations.h"
#include "backend/operation_list.h"
#include "backend/operations.h"
#include "backend/pack_shape.h"
#include "backend/routing_operations.h"
#include "backend/scan_operations.h"

namespace kvcal {

class Backend;
class PackGroup;

/// How a library computes the products of one shape, for people.
struct ProductChoice {
  std::string product;    ///< "bfloat16, 4096 to 28672"
  std::string algorithm;  ///< "66, tile 128x256, stages 64xAUTO, cluster 2x1x1"
  std::string reason;     ///< "fastest of 5 timed", "first, not timed"
  bool operator==(const ProductChoice&) const = default;
};

/// Device time of one part of the operations.
struct PartTime {
  std::string part;  ///< "products"
  double seconds = 0.0;
};

/// Told where each operation begins and ends, those that run within another too.
class OperationWatch {
 public:
  virtual ~OperationWatch() = default;
  virtual void begin(std::string_view operation) = 0;
  virtual void end() = 0;
};

/// An operation as the watch sees it, if there is one.
class WatchedOperation {
 public:
  WatchedOperation(OperationWatch* watch, std::string_view operation) : watch_(watch) {
    if (watch_) watch_->begin(operation);
  }
  ~WatchedOperation() {
    if (watch_) watch_->end();
  }
  WatchedOperation(const WatchedOperation&) = delete;
  WatchedOperation& operator=(const WatchedOperation&) = delete;

 private:
  OperationWatch* watch_;
};

/// Operations recorded once and replayed many times (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void play() = 0;
};

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

/// The only contract between the model and its computation: memory, packed matrices and the
/// operations of operation_list.h. Pointers are backend memory unless said otherwise. Every
/// operation gives the same bytes for any number of threads, and a row's result does not depend on
/// the other rows.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  ///< "cpu", "reference"
  virtual std::string description()
      const = 0;  ///< for the manifest: "cpu (avx512_bf16, 2 threads)"
  /// Warnings of the device and its operations that are new since the last call, a line each: what
  /// makes them slow, and what to do.
  virtual std::vector<std::string> take_warnings() { return {}; }
  /// Kernels that operations have used so far and that a user may want to know, for the manifest:
  /// "attention on tensor cores".
  virtual std::string kernels_used() const { return ""; }
  /// Algorithms that the backend's matrix library has chosen so far.
  virtual std::vector<ProductChoice> product_choices() const { return {}; }
  /// Device time of the operations so far, by part, for which this waits; empty unless it is taken
  /// (BackendOptions::times_parts).
  virtual std::vector<PartTime> part_times() { return {}; }
  virtual bool supports(ComputeType type) const = 0;
  /// The type that --compute-dtype auto chooses.
  virtual ComputeType preferred_compute_type() const = 0;
  /// Batch size in tokens: large enough to occupy every thread, small enough that the activations
  /// between two operations, bytes_per_token for each token, stay in the cache.
  virtual int64_t preferred_batch_tokens(int64_t bytes_per_token) const = 0;
  /// Whether matmul_activate needs no scratch.
  virtual bool activates_in_matmul() const { return false; }
  /// Whether attention can rotate its queries.
  virtual bool turns_queries() const { return false; }
  /// Whether enter_cache leaves its heads as they are, so that they can enter a second time.
  virtual bool leaves_entered_heads() const { return false; }
  /// Upper bound of attention's scratch bytes for one row of K and V of all heads. args gives
  /// heads, dimensions and types; its pointers and segments are unused.
  virtual uint64_t attention_bytes_per_key(const AttentionArgs&) const { return 0; }
  /// Upper bound of select_keys' scratch bytes for one key.
  virtual uint64_t selection_bytes_per_key() const { return 0; }

  /// Whether host code may access this backend's memory, and operations are complete when they
  /// return. Otherwise they run later, in order, and copy_out waits for them.
  virtual bool is_host() const { return true; }
  /// Free bytes of the backend's own memory; nullopt on a host.
  virtual std::optional<uint64_t> free_memory() const { return std::nullopt; }
  /// Whether pack may run in one other thread beside the operations, to overlap transfers.
  virtual bool packs_beside() const { return false; }

  virtual Buffer allocate(size_t bytes) = 0;  ///< throws Error when there is no memory
  virtual void free(std::byte* data, size_t bytes) noexcept = 0;
  virtual void copy_in(std::span<const std::byte> host, std::byte* data) = 0;
  virtual void copy_out(const std::byte* data, std::span<std::byte> host) = 0;
  virtual void fill_zero(std::byte* data, size_t bytes) = 0;

  // Hidden states beyond the backend's memory lie in pinned host memory. A fetch begins after the
  // operations issued before it, and runs beside those issued later, until await_fetches is called.
  // A write-back begins after the operations issued before it, and later fetches see its bytes.
  virtual Buffer allocate_pinned(size_t bytes) { return allocate(bytes); }
  virtual void fetch(const std::byte* pinned, std::span<std::byte> data);
  virtual void write_back(std::span<const std::byte> data, std::byte* pinned);
  /// Makes operations issued from now on see the bytes fetched before.
  virtual void await_fetches() {}

  virtual bool can_record() const { return false; }
  /// Records the operations that body issues, without running them. Their arguments must be in
  /// backend memory; body may not allocate, copy_in or copy_out.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& body);

  /// Concatenates F32, F16 or BF16 matrices [n_i, in] along their rows and packs them for type.
  virtual std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts,
                                             ComputeType type) = 0;
  /// As pack, of rows that are decoded meanwhile: by all threads, a few rows at a time, where the
  /// backend can.
  virtual std::unique_ptr<PackedMatrix> pack_decoded(std::span<const DecodedRows> parts,
                                                     ComputeType type);
  /// Upper bound of the decoded bytes that pack_decoded has in memory for a matrix.
  virtual uint64_t decoded_bytes(int64_t rows, int64_t width) const;
  /// Concatenates and packs F8_E4M3 matrices for matmul_fp8. Scales (host): one a part, or one an
  /// output row.
  virtual std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                                 std::span<const float> scales) = 0;
  /// Packs for all of these backends, this one's kind and the first of them this one. A device
  /// reads and decodes for all together; here each packs by itself.
  virtual std::unique_ptr<PackGroup> make_pack_group(std::span<Backend* const> backends);

  // The operations: norm(args) checks the arguments and runs do_norm(args).
#define KVCAL_OPERATION(name, Args)                \
  void name(const Args& args) {                    \
    check(args);                                   \
    const WatchedOperation watched(watch_, #name); \
    do_##name(args);                               \
  }
  KVCAL_OPERATIONS(KVCAL_OPERATION)
  KVCAL_FUSED_OPERATIONS(KVCAL_OPERATION)
#undef KVCAL_OPERATION

 protected:
#define KVCAL_OPERATION(name, Args) virtual void do_##name(const Args& args) = 0;
  KVCAL_OPERATIONS(KVCAL_OPERATION)
#undef KVCAL_OPERATION
#define KVCAL_OPERATION(name, Args) virtual void do_##name(const Args& args);
  KVCAL_FUSED_OPERATIONS(KVCAL_OPERATION)
#undef KVCAL_OPERATION

  OperationWatch* watch_ = nullptr;  ///< of a backend that times its operations

 private:
  // Checks with KVCAL_CHECK that heads, widths, strides and segments are consistent. Throws Error
  // for token ids outside the table and for a file's matrix of a wrong shape. Row numbers in
  // backend memory are checked only on hosts.
#define KVCAL_OPERATION(name, Args) void check(const Args& args) const;
  KVCAL_OPERATIONS(KVCAL_OPERATION)
  KVCAL_FUSED_OPERATIONS(KVCAL_OPERATION)
#undef KVCAL_OPERATION
};

inline Buffer::~Buffer() {
  if (data_) owner_->free(data_, size_);
}

struct BackendOptions {
  int num_threads = 0;   ///< of the host; 0: one a core; a GPU's packing takes a few of them
  int device_index = 0;  ///< of a GPU
  /// Whether a GPU's matrix library takes the fastest algorithm that a short trial finds instead of
  /// its own favourite. Both give the same bytes; the trial takes 0.3 s and memory.
  bool times_products = false;
  bool times_parts = false;  ///< whether a GPU takes the time of its operations
};

/// Copies host values to a new buffer of the backend.
template <class T>
Buffer upload(std::span<const T> values, Backend& backend) {
  Buffer buffer = backend.allocate(values.size_bytes());
  backend.copy_in(std::as_bytes(values), buffer.data());
  return buffer;
}

/// The rows of a matrix, one below the other. Borrows them.
struct PackArgs {
  std::span<const TensorView> parts = {};     ///< as Backend::pack takes them
  std::span<const DecodedRows> decoded = {};  ///< in place of parts
  std::span<const float> scales = {};         ///< parts are codes, as Backend::pack_fp8 takes them
  ComputeType type = ComputeType::kFloat32;   ///< of the packed numbers; codes have none
};

/// Backends of one kind that pack the same matrices. Borrows them.
class PackGroup {
 public:
  explicit PackGroup(std::span<Backend* const> backends)
      : backends_(backends.begin(), backends.end()) {}
  virtual ~PackGroup() = default;
  PackGroup(const PackGroup&) = delete;
  PackGroup& operator=(const PackGroup&) = delete;

  std::span<Backend* const> backends() const { return backends_; }
  /// Packs the matrix for every backend, in their order; the sources may go when it returns. Throws
  /// as Backend::pack does: then no backend has the matrix. Not thread-safe, but may run in another
  /// thread where the backends' pack may.
  virtual std::vector<std::unique_ptr<PackedMatrix>> pack(const PackArgs& args);

 private:
  std::vector<Backend*> backends_;
};

}  // namespace kvcal
