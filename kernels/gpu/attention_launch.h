#pragma once

#include <string>

#include "kernels/gpu/attention.h"
#include "kernels/gpu/chips.h"
#include "kernels/gpu/half_words.h"

// What the kernels of attention with matrix instructions share: how they end, and the host's side.
namespace kvcal::gpu {

/// Rounds and writes two neighbours of out, of 16 bits, and folds them into the observation.
__device__ inline void write_pair(const DeviceAttention& args, int64_t at, float first,
                                  float second, SeenAmax& seen) {
  const bool is_bf16 = args.out_type == ComputeType::kBFloat16;
  const uint32_t word = is_bf16 ? pair_of<BF16>(first, second) : pair_of<F16>(first, second);
  *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(args.out) + at) = word;
  if (!args.seen.amax) return;
  for (int e = 0; e < 2; ++e) {
    const auto bits = static_cast<uint16_t>(word >> (16 * e));
    seen.see(is_bf16 ? to_float(BF16{bits}) : to_float(F16{bits}));
  }
}

// ---- the host's side ----

/// What one line says of attention that runs in float32 instead.
inline std::string slow_text(const DeviceAttention& args, const DeviceProperties& chip,
                             const std::string& reason) {
  return "attention runs in float32 without " + std::string(matrix_units(chip.architecture)) +
         ", which is slow: " + reason + " (head_dim " +
         std::to_string(larger(args.head_dim, args.v_head_dim)) + ", " +
         std::string(name_of(args.kv_dtype)) + " cache)";
}

/// What of the shape is not supported; "" where all is.
inline std::string unsupported_shape(const DeviceAttention& args) {
  const int64_t bytes = bytes_per_element(args.kv_dtype);
  if (args.head_dim > 256 || args.v_head_dim > 256) return "heads are wider than 256";
  if (args.v_head_dim % 8 != 0 || args.head_dim * bytes % 16 != 0 ||
      args.v_head_dim * bytes % 16 != 0)
    return "a head's row is no multiple of 16 bytes";
  if (!is_aligned(args.k, 16) || !is_aligned(args.v, 16) || !is_aligned(args.out, 4))
    return "the cache is not aligned to 16 bytes";
  for (const Segment& segment : args.segments)
    if (segment.kv_count >= kMaxKeys) return "a sequence is longer than 2^30 keys";
  return "";
}

/// Launches Kernel<Kv, kDim>::kEntry, by blocks of kThreads that take kRows rows and kSharedBytes.
template <template <class, int> class Kernel, class Kv, int kDim>
bool launch_attention(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                      std::string& slow) {
  using This = Kernel<Kv, kDim>;
  if (This::kSharedBytes > chip.shared_bytes_per_block) {
    slow = slow_text(args, chip,
                     "its tiles take " + std::to_string(This::kSharedBytes) +
                         " bytes of shared memory, a block of " + chip.architecture + " has " +
                         std::to_string(chip.shared_bytes_per_block));
    return false;
  }
  AttentionGrid grid = attention_grid(args, This::kRows);
  const int64_t count = static_cast<int64_t>(args.segments.size());
  for (grid.first_segment = 0; grid.first_segment < count; grid.first_segment += 65535)
    launch("attention",
           {.stream = stream,
            .blocks = grid.query_blocks * (args.heads / grid.packed_heads),
            .blocks_y = static_cast<unsigned>(smaller<int64_t>(count - grid.first_segment, 65535)),
            .threads = This::kThreads,
            .shared_bytes = This::kSharedBytes},
           This::kEntry, args, grid);
  return true;
}

/// There need not be a kernel for every Kv and width.
template <template <class, int> class Kernel, class Kv, int kDim>
requires(!requires {
  Kernel<Kv, kDim>::kEntry;
}) bool launch_attention(Stream&, const DeviceAttention&, const DeviceProperties&, std::string&) {
  return false;
}

/// The same for the narrowest kernel that holds the heads; false, with the reason, where none does.
template <template <class, int> class Kernel>
bool launch_for_shape(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                      std::string& slow) {
  if (args.out_type == ComputeType::kFloat32) return false;
  if (const std::string reason = unsupported_shape(args); !reason.empty()) {
    slow = slow_text(args, chip, reason);
    return false;
  }
  const int64_t dim = larger(args.head_dim, args.v_head_dim);
  bool is_launched = false;
  with_kv_type(args.kv_dtype, [&](auto element) {
    using Kv = decltype(element);
    is_launched = dim <= 64    ? launch_attention<Kernel, Kv, 64>(stream, args, chip, slow)
                  : dim <= 96  ? launch_attention<Kernel, Kv, 96>(stream, args, chip, slow)
                  : dim <= 128 ? launch_attention<Kernel, Kv, 128>(stream, args, chip, slow)
                               : launch_attention<Kernel, Kv, 256>(stream, args, chip, slow);
  });
  return is_launched;
}

}  // namespace kvcal::gpu
