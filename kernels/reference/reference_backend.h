#pragma once

#include <vector>

#include "kernels/host_backend.h"

namespace kvcal {

/// Plain loops, one thread, sums in double: the reference for every other backend.
class ReferenceBackend : public HostBackend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "reference (plain loops, 1 thread)"; }
  bool supports(ComputeType) const override { return true; }
  ComputeType preferred_compute_type() const override { return ComputeType::kFloat32; }
  int64_t preferred_batch_tokens(int64_t) const override { return 512; }

  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override;
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override;

 protected:
  KVCAL_OPERATIONS(KVCAL_OVERRIDE_OPERATION)
};

/// Row-major values, each rounded to type.
class ReferenceMatrix : public PackedMatrix {
 public:
  ComputeType type = ComputeType::kFloat32;
  std::vector<float> values;  ///< [out_features, in_features]
};

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

}  // namespace kvcal
