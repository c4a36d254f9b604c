#include "kernels/gpu/attention.h"

#include <algorithm>
#include <utility>

#include "kernels/gpu/chips.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

AttentionGrid attention_grid(const AttentionArgs& args, int rows) {
  const int group = static_cast<int>(args.heads / args.kv_heads);
  AttentionGrid grid{.rows = rows, .packed_heads = 1, .first_segment = 0, .query_blocks = 0};
  for (int packed = std::min(group, 16); packed > 1; --packed)
    if (group % packed == 0) {
      grid.packed_heads = packed;
      break;
    }
  int64_t queries = 0;
  for (const Segment& segment : args.segments) queries = std::max(queries, segment.q_count);
  grid.query_blocks = ceil_div(queries, rows / grid.packed_heads);
  return grid;
}

void GpuBackend::do_attention(const AttentionArgs& asked) {
  if (asked.segments.empty()) return;
  DeviceAttention args = asked;
  args.v_head_dim = asked.value_dim();
  if (!args.current_segments) args.current_segments = on_device(asked.segments);
  const auto turn = [&] {
    if (args.rope.x.data) do_rope(std::exchange(args.rope, {}));
  };
  if (args.selection.words || args.weight_scale > 0.0f) {
    note_attention(AttentionUnits::kFloat32, "");
    turn();  // this kernel reads a query once a tile of keys
    return attend_simt(stream(), args);
  }
  if (const int64_t floats = decoding_scratch(args); args.is_decoding && floats > 0)
    return attend_decoding(
        stream(), args,
        reinterpret_cast<float*>(lasting_scratch(static_cast<size_t>(floats) * sizeof(float))));
  if (args.rope.x.data && !turns_in_pairs(args)) turn();
  if (attends_with_warpgroups_ && attend_with_warpgroups(stream(), args, properties_))
    return note_attention(AttentionUnits::kWarpgroups, "");
  std::string slow;
  const auto attend =
      has_wave_matrix(properties_.architecture) ? attend_with_waves : attend_with_warps;
  const bool in_matrix_units = attend(stream(), args, properties_, slow);
  note_attention(in_matrix_units ? AttentionUnits::kMatrix : AttentionUnits::kFloat32, slow);
  if (in_matrix_units) return;
  turn();
  attend_simt(stream(), args);
}

}  // namespace kvcal::gpu
