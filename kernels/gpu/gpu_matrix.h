#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/pack_shape.h"
#include "core/parallel.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

/// A weight on the device: [out_features, in_features] row-major elements of type, or E4M3FN codes.
class GpuMatrix : public PackedMatrix {
 public:
  GpuMatrix(GpuBackend& backend) : backend_(backend) {}
  ~GpuMatrix() override {
    // Released on the stream of operations, which may never have waited for the upload.
    try {
      backend_.stream().wait(ready);
    } catch (...) {  // the device failed
    }
  }
  GpuBackend& backend() const { return backend_; }

  ComputeType type = ComputeType::kFloat32;
  bool is_fp8 = false;
  Buffer values;
  Buffer scales;                   ///< of codes: one float32, or [out_features]
  bool scale_per_feature = false;  ///< which of the two
  Event ready;
  uint64_t number = 0;  ///< packing order, from 1

 private:
  GpuBackend& backend_;
};

/// Product of args, of matmul or matmul_fp8, without scales.
template <class Args>
MatmulProblem problem_of(const Args& args, const GpuMatrix& weight) {
  return {.type = weight.type,
          .is_fp8 = weight.is_fp8,
          .x = args.x,
          .weight = weight.values.data(),
          .bias = args.bias,
          .out = args.out,
          .accumulate = args.accumulate,
          .rows = args.rows,
          .in = weight.in_features,
          .out_features = weight.out_features,
          .out_stride = args.out_row_stride(),
          .is_decoding = args.is_decoding};
}

/// Rows of a decoding step that multiply_own processes together, with one read of the weight.
constexpr int kFewRows = 4;
inline bool has_few_rows(const MatmulProblem& problem) {
  return problem.is_decoding && problem.rows <= kFewRows;
}

/// Product by our own kernels, for any elements, scales and shape.
void multiply_own(const MatmulProblem& problem, Stream& stream);

struct HostRows;

/// Packs for several devices of the process: a few threads copy or decode some rows into a chunk of
/// pinned memory, and every device copies them from there, on its upload stream. A chunk is filled
/// again when all devices have it, so the slowest sets the pace.
class GpuPackGroup : public PackGroup {
 public:
  /// Of pinned memory, for all devices together.
  static constexpr size_t kChunkBytes = size_t{16} << 20, kChunks = 4;
  /// More threads gain little: a few take most of a socket's memory bandwidth.
  static constexpr int kMostThreads = 4;

  /// devices: GpuBackends. threads: that fill a chunk, but no more than kMostThreads and the CPUs
  /// of the process; 0: as many.
  GpuPackGroup(std::span<Backend* const> devices, int threads);

  std::vector<std::unique_ptr<PackedMatrix>> pack(const PackArgs& args) override;

 private:
  struct Raw;
  using Targets = std::vector<std::unique_ptr<GpuMatrix>>;  ///< by device

  std::vector<std::unique_ptr<PackedMatrix>> pack_numbers(const PackArgs& args);
  std::vector<std::unique_ptr<PackedMatrix>> pack_codes(const PackArgs& args);
  /// Matrices without content, the values and the scales of so many bytes.
  Targets make_targets(const PackShape& shape, size_t value_bytes, size_t scale_bytes) const;
  /// Runs upload_all, which uploads into the matrices, and marks the end of the uploads.
  static std::vector<std::unique_ptr<PackedMatrix>> finish(Targets targets,
                                                           const std::function<void()>& upload_all);
  /// Uploads the rows to every device's out; as numbers of type where it is given.
  void upload(const HostRows& rows, std::optional<ComputeType> type,
              std::span<std::byte* const> out);
  void fill(const HostRows& rows, size_t begin, std::span<std::byte> chunk);
  GpuBackend& device(size_t index) const;

  ThreadPool pool_;
  Staging staging_;
};

}  // namespace kvcal::gpu
