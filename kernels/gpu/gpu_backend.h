// kernels/gpu/*.cu mirrors kernels/cpu/*.cc and compiles three ways: as CUDA, as HIP, and for
// the host as the simulated device of the tests (tests/simulator). tests/ptx executes the PTX
// that nvcc makes of them on the CPU. Only portability.h knows the vendor: streams, events,
// graphs, launches, lanes. warp_matrix.h, warpgroup_matrix.h (sm_90a) and wave_matrix.h have the
// matrix instructions, half_words.h what is one instruction in each vendor's set; cuda/ and hip/
// have the adapters of the vendors' matrix libraries, which are loaded at run time.
//
// Operations run on one of three streams, in order, and the calls return before the work is
// done; copy_out waits. Spilled hidden states travel on the second stream, weights on the third:
// a thread of LayerPrefetch packs layer l+1 through pinned chunks, for all devices, and the
// first product with a matrix waits for the event of its upload. Memory is kept: an allocation
// by the driver stalls the device, so released blocks are reused once the stream of their last
// use has passed them. A row's bytes depend on the row alone: a matrix algorithm is chosen once
// a shape, split sums are refused, and tiles of keys begin at a sequence's first key. Decoding
// steps may differ (is_decoding); they are recorded once, as a graph, and replayed for every
// token.
#pragma once

#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/pack_shape.h"
#include "kernels/gpu/device_memory.h"
#include "kernels/gpu/make_gpu_backend.h"
#include "kernels/gpu/portability.h"
#include "kernels/gpu/vendor_matmul.h"
#include "kernels/host_backend.h"

namespace kvcal::gpu {

class GpuMatrix;
class GpuPackGroup;

/// Segments and their address on the device.
struct DeviceSegments {
  std::vector<Segment> host;
  Buffer device;
  bool is_recorded = false;  ///< a recording reads them at this address
};

/// What computed attention, in the order of names.
enum class AttentionUnits { kWarpgroups, kMatrix, kFloat32 };

/// One GPU: our kernels and, for matrix products, the vendor's library. Operations run on one
/// stream in order, which the products of one operation may leave for others meanwhile; spilled
/// hidden states travel on another, weights on a third, possibly issued by another thread.
class GpuBackend : public Backend {
 public:
  explicit GpuBackend(const BackendOptions& options);
  ~GpuBackend() override;

  std::string_view name() const override { return kDeviceName; }
  std::string description() const override;
  std::vector<std::string> take_warnings() override { return std::exchange(warnings_, {}); }
  std::string kernels_used() const override;
  std::vector<ProductChoice> product_choices() const override;
  std::vector<PartTime> part_times() override;
  bool supports(ComputeType) const override { return true; }
  ComputeType preferred_compute_type() const override { return ComputeType::kBFloat16; }
  int64_t preferred_batch_tokens(int64_t) const override { return 16384; }
  bool is_host() const override { return false; }
  std::optional<uint64_t> free_memory() const override;
  bool packs_beside() const override { return true; }
  bool turns_queries() const override { return true; }
  bool leaves_entered_heads() const override { return true; }
  uint64_t selection_bytes_per_key() const override;

  Buffer allocate(size_t bytes) override;
  void free(std::byte* data, size_t bytes) noexcept override;
  void copy_in(std::span<const std::byte> host, std::byte* data) override;
  void copy_out(const std::byte* data, std::span<std::byte> host) override;
  void fill_zero(std::byte* data, size_t bytes) override;
  Buffer allocate_pinned(size_t bytes) override;
  void fetch(const std::byte* pinned, std::span<std::byte> data) override;
  void write_back(std::span<const std::byte> data, std::byte* pinned) override;
  void await_fetches() override;
  bool can_record() const override { return true; }
  std::unique_ptr<Recording> record(const std::function<void()>& body) override;

  /// Time of body on the device's clock.
  double milliseconds_of(const std::function<void()>& body);
  void copy(const std::byte* from, std::byte* to, size_t bytes);

  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override;
  std::unique_ptr<PackedMatrix> pack_decoded(std::span<const DecodedRows> parts,
                                             ComputeType type) override;
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override;
  std::unique_ptr<PackGroup> make_pack_group(std::span<Backend* const> backends) override;

 protected:
  KVCAL_OPERATIONS(KVCAL_OVERRIDE_OPERATION)
  void do_residual_norm(const ResidualNormArgs& args) override;
  void do_enter_cache(const EnterCacheArgs& args) override;
  void do_matmul_groups(const MatmulGroupsArgs& args) override;
  /// In bfloat16 gate and up are rounded to it where the vendor's library multiplies, which halves
  /// the bytes between product and activation.
  void do_matmul_activate(const MatmulActivateArgs& args) override;

 private:
  /// Stream of operations; makes this the device of the calling thread.
  Stream& stream();
  /// Stream of weights; likewise.
  Stream& upload_stream();
  /// Launch of a kernel that uses for_pieces: enough blocks to fill the device several times, so
  /// that the last blocks end together.
  Launch on_pieces(int64_t pieces);
  /// Copies on the stream of hidden states, behind what was issued before.
  void transfer(const std::byte* from, std::byte* to, size_t bytes);
  /// Throws Error during a recording, which can hold only operations.
  void check_not_recording(const char* what) const;
  /// Segments in device memory; lists of earlier calls are cached.
  const Segment* on_device(std::span<const Segment> segments);
  friend class GpuMatrix;
  friend class GpuPackGroup;
  /// Packs for this device alone.
  std::unique_ptr<PackedMatrix> pack_alone(const PackArgs& args);
  /// Remembers what computed attention. slow: why matrix instructions did not though they would
  /// have been faster, or "".
  void note_attention(AttentionUnits units, const std::string& slow);
  /// Activates rows of From, which stand for args.x, into T.
  template <class T, class From>
  void activate_rows(const From* in, const ActivationArgs& args);
  /// Makes later operations wait for the weight.
  void await_upload(const GpuMatrix& weight);
  /// The problems of products whose weights compute_ waits for, on one stream or side by side.
  std::vector<MatmulProblem> problems_of(const MatmulGroupsArgs& args);
  void multiply_all(std::span<const MatmulProblem> problems);
  void multiply(const MatmulProblem& problem, Stream& on);
  /// matmul_groups whose out holds bfloat16 instead; false where the library does not round so.
  bool multiply_rounded(const MatmulGroupsArgs& args);
  /// FP8 product by the vendor's library, directly or in bfloat16; false where it supports neither.
  bool multiply_fp8_by_vendor(const MatmulProblem& problem);
  /// Scratch for the next operation only, at a fixed address for recordings: a recorded operation
  /// must have run once before with the same shapes.
  std::byte* lasting_scratch(size_t bytes);

  int device_;
  DeviceProperties properties_;
  Stream compute_, transfer_, upload_;  ///< operations; hidden states; weights
  SideStreams sides_;                   ///< beside compute_
  DeviceMemory memory_;
  Staging small_;  ///< for copy_in
  int pack_threads_;
  std::unique_ptr<PackGroup> alone_;       ///< for pack_alone; null before the first
  std::unique_ptr<PartClock> part_clock_;  ///< of compute_; null: no time is taken
  std::unique_ptr<VendorMatmul> vendor_;
  std::string vendor_name_;
  std::vector<std::string> warnings_;
  std::set<std::string> told_;            ///< warnings of operations
  bool attends_with_warpgroups_ = false;  ///< where their kernel takes the shape
  std::set<AttentionUnits> attended_;
  Event fetched_;  ///< of transfer_
  /// Number of packed matrices, and of those that compute_ has waited for, in packing order.
  std::atomic<uint64_t> packed_ = 0, awaited_ = 0;
  std::vector<DeviceSegments> segments_;  ///< most recently used last
  std::vector<std::byte*> pinned_;
  std::vector<Buffer> lasting_scratch_;  ///< in use: the last; recordings have the others
};

}  // namespace kvcal::gpu
