#pragma once

#include <map>
#include <mutex>
#include <span>

#include "backend/backend.h"

namespace kvcal {

/// What the backends that compute in host memory share: allocation (64-byte aligned) and copies.
class HostBackend : public Backend {
 public:
  ~HostBackend() override;
  Buffer allocate(size_t bytes) override;
  void free(std::byte* data, size_t bytes) noexcept override;
  void copy_in(std::span<const std::byte> host, std::byte* data) override;
  void copy_out(const std::byte* data, std::span<std::byte> host) override;
  void fill_zero(std::byte* data, size_t bytes) override;

 private:
  /// Large blocks that were freed, by size: the next layer asks for the same ones, and fresh memory
  /// costs as much as packing into it. They go when a size is asked for that is not among them.
  std::multimap<size_t, std::byte*> spare_;
  std::mutex spare_mutex_;

 protected:
  /// Folds what an operation has written, [count] of type, into its slot.
  void observe_written(const AmaxSlot& seen, ComputeType type, const void* out, int64_t count);
  /// The same of attention's rows.
  void observe_attended(const AttentionArgs& args);
};

/// The arguments with the segments that hold now.
AttentionArgs with_current_segments(const AttentionArgs& args);

/// What pack() will concatenate: rows in all, and the width they share.
struct PackShape {
  int64_t out_features = 0;
  int64_t in_features = 0;
};

/// Checks the parts of a pack: at least one, rank 2, equal width, F32, F16 or BF16, bytes as the
/// shape says. Throws Error naming the part that is wrong.
PackShape checked_pack_shape(std::span<const TensorView> parts);
/// The same for parts of any type.
PackShape concatenated_shape(std::span<const TensorView> parts);

/// Throws Error where the table is not [vocab, hidden] of F32, F16 or BF16, or an id leaves it.
void check_embed(const EmbedArgs& args);

/// Throws (our own mistake) where heads, widths, strides or segments contradict each other.
void check_heads(const HeadsView& x);
void check_norm(const NormArgs& args);
void check_norm_heads(const NormHeadsArgs& args);
void check_rope(const RopeArgs& args);
void check_observe_kv(const ObserveKvArgs& args);
void check_observe_rows(const ObserveRowsArgs& args);
void check_store_kv(const StoreKvArgs& args);
void check_load_kv(const LoadKvArgs& args);
void check_copy_heads(const CopyHeadsArgs& args);
void check_attention(const AttentionArgs& args);
void check_activate(const ActivationArgs& args);
void check_add(const AddArgs& args);
void check_multiply_gate(const MultiplyGateArgs& args);
void check_gated_norm(const GatedNormArgs& args);
void check_causal_conv(const CausalConvArgs& args);
void check_ssm_scan(const SsmScanArgs& args);
void check_delta_scan(const DeltaScanArgs& args);
void check_gather_rows(const GatherRowsArgs& args);
void check_scatter_add(const ScatterAddArgs& args);
void check_observe_amax(const ObserveAmaxArgs& args);

}  // namespace kvcal
