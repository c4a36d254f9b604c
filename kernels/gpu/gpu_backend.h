#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "kernels/gpu/device_memory.h"
#include "kernels/gpu/make_gpu_backend.h"
#include "kernels/gpu/portability.h"
#include "kernels/gpu/vendor_matmul.h"
#include "kernels/host_backend.h"

namespace kvcal::gpu {

class GpuMatrix;

/// Segments, and where they lie on the device.
struct DeviceSegments {
  std::vector<Segment> host;
  Buffer device;
  bool is_recorded = false;  ///< a recording reads them where they are
};

/// One GPU: kernels of ours and, for matrix products, the vendor's library. Operations go to one
/// stream in the order they are asked for; hidden states that do not fit travel on a second one,
/// weights on a third, from another thread if need be.
class GpuBackend : public Backend {
 public:
  explicit GpuBackend(const BackendOptions& options);
  ~GpuBackend() override;

  std::string_view name() const override { return kDeviceName; }
  std::string description() const override;
  bool supports(ComputeType) const override { return true; }
  ComputeType preferred_compute_type() const override { return ComputeType::kBFloat16; }
  int64_t preferred_batch_tokens(int64_t) const override { return 16384; }
  bool is_host() const override { return false; }
  std::optional<uint64_t> free_memory() const override;
  bool packs_beside() const override { return true; }

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

  /// By the device's clock.
  double milliseconds_of(const std::function<void()>& body);
  void copy(const std::byte* from, std::byte* to, size_t bytes);

  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override;
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override;

 protected:
  KVCAL_OPERATIONS(KVCAL_OVERRIDE_OPERATION)
  void do_residual_norm(const ResidualNormArgs& args) override;
  void do_enter_cache(const EnterCacheArgs& args) override;

 private:
  /// The stream of operations; this thread's calls go to the device from now on.
  Stream& stream();
  /// Throws Error where a recording is being made, which can hold operations only.
  void check_not_recording(const char* what) const;
  /// The segments in device memory. Lists that were asked for before are there already.
  const Segment* on_device(std::span<const Segment> segments);
  /// A part of a matrix as elements of type, by way of the upload stream.
  void upload_part(const TensorView& part, ComputeType type, std::byte* out);
  friend class GpuMatrix;
  /// Operations asked for from now on see the weight.
  void await_upload(const GpuMatrix& weight);
  /// An FP8 product by the vendor's library, as it is or as one of bfloat16; false where it takes
  /// neither.
  bool multiply_fp8_by_vendor(const MatmulProblem& problem);
  /// Memory for the operation asked for next alone, which stays where it is for recordings: what is
  /// recorded must have run once before with the same shapes.
  std::byte* lasting_scratch(size_t bytes);

  int device_;
  DeviceProperties properties_;
  Stream compute_, transfer_, upload_;  ///< operations; hidden states; weights
  DeviceMemory memory_;
  Staging small_;    ///< for copy_in
  Staging weights_;  ///< for pack
  std::unique_ptr<VendorMatmul> vendor_;
  std::string vendor_name_;
  Event fetched_;  ///< of transfer_
  /// Matrices packed, and those that compute_ has waited for, in the order they were packed.
  std::atomic<uint64_t> packed_ = 0, awaited_ = 0;
  std::vector<DeviceSegments> segments_;  ///< last used at the end
  std::vector<std::byte*> pinned_;
  std::vector<Buffer> lasting_scratch_;  ///< the last is in use; recordings know the others
};

}  // namespace kvcal::gpu
