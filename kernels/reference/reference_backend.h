#pragma once

#include <vector>

#include "kernels/host_backend.h"

namespace kvcal {

/// Plain loops, one thread, sums in double: what every other backend is compared with.
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
  void embed(const EmbedArgs& args) override;
  void norm(const NormArgs& args) override;
  void norm_heads(const NormHeadsArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope(const RopeArgs& args) override;
  void observe_kv(const ObserveKvArgs& args) override;
  void observe_rows(const ObserveRowsArgs& args) override;
  void store_kv(const StoreKvArgs& args) override;
  void load_kv(const LoadKvArgs& args) override;
  void copy_heads(const CopyHeadsArgs& args) override;
  void attention(const AttentionArgs& asked) override;
  void activate(const ActivationArgs& args) override;
  void add(const AddArgs& args) override;
  void multiply_gate(const MultiplyGateArgs& args) override;
  void gated_norm(const GatedNormArgs& args) override;
  void causal_conv(const CausalConvArgs& args) override;
  void ssm_scan(const SsmScanArgs& args) override;
  void delta_scan(const DeltaScanArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void scatter_add(const ScatterAddArgs& args) override;
  void observe_amax(const ObserveAmaxArgs& args) override;
  void quantize_rows(const QuantizeRowsArgs& args) override;
  void matmul_fp8(const Fp8MatmulArgs& args) override;
};

/// Row-major values, each rounded to type.
class ReferenceMatrix : public PackedMatrix {
 public:
  ComputeType type = ComputeType::kFloat32;
  std::vector<float> values;  ///< [out_features, in_features]
};

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

}  // namespace kvcal
