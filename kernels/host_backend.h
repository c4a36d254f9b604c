#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace kvcal {

/// Base of the backends that compute in host memory: allocation (64-byte aligned) and copies.
class HostBackend : public Backend {
 public:
  ~HostBackend() override;
  Buffer allocate(size_t bytes) override;
  void free(std::byte* data, size_t bytes) noexcept override;
  void copy_in(std::span<const std::byte> host, std::byte* data) override;
  void copy_out(const std::byte* data, std::span<std::byte> host) override;
  void fill_zero(std::byte* data, size_t bytes) override;

 private:
  /// Large freed blocks, by size: the next layer needs the same sizes, and fresh memory costs as
  /// much as packing into it. A request for another size releases them.
  std::multimap<size_t, std::byte*> spare_;
  std::mutex spare_mutex_;

 protected:
  /// Folds an operation's output, [count] of type, into its slot.
  void observe_written(const AmaxSlot& seen, ComputeType type, const void* out, int64_t count);
  /// Folds attention's output into its slot.
  void observe_attended(const AttentionArgs& args);
};

/// Sets the bits of the topk keys with the largest scores in a row of KeySelection, and clears the
/// others. ordered: scratch.
void select_largest(std::span<const float> scores, int64_t topk, std::span<uint32_t> row,
                    std::vector<uint32_t>& ordered);
/// The same for scores of blocks of keys: a query that sees so many keys selects all keys of the
/// topk blocks, and those behind the last block.
void select_blocks(std::span<const float> scores, int64_t keys, const SelectKeysArgs& args,
                   std::span<uint32_t> row, std::vector<uint32_t>& ordered);

/// The choice of route for rows [begin, end).
void choose_experts(const RouteArgs& args, int64_t begin, int64_t end);
/// The order and the counts of route, of all rows' choice.
void sort_by_expert(const RouteArgs& args);

/// Elements of a token's heads.
inline int64_t width_of(const HeadsView& x) {
  return x.heads * x.head_dim;
}

/// The arguments with the current segments.
AttentionArgs with_current_segments(const AttentionArgs& args);

}  // namespace kvcal
