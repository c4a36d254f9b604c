#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

template <bool kAligned>
__global__ void copy_heads_kernel(CopyHeadsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  for_pieces(args.out.tokens * args.out.heads * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const Place head = place_of(place.row, args.out.heads);  // its token, and which head it is
    const int64_t from = args.x.heads == 1 ? 0 : head.piece;
    const int64_t i = 4 * place.piece, left = args.width - i;
    const float* x = args.x.data + head.row * args.x.row_stride + from * args.x.head_dim;
    float* out = args.out.data + head.row * args.out.row_stride + head.piece * args.out.head_dim;
    store_four<kAligned>(out + i, load_four<kAligned>(x + i, left), left);
  });
}

/// Rows of `pieces` Units each.
template <class Unit>
__global__ void gather_rows_kernel(const Unit* x, const int32_t* rows, int64_t count,
                                   int64_t pieces, Unit* out) {
  for_pieces(count * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    out[index] = x[rows[place.row] * pieces + place.piece];
  });
}

/// Reads and writes an out row once, and only where x holds one of its places.
template <bool kAligned>
__global__ void combine_rows_kernel(CombineRowsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  for_pieces(args.rows * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const int64_t i = 4 * place.piece, left = args.width - i;
    float* out = args.out + place.row * args.width + i;
    Four sum{};
    bool is_loaded = false;
    for (int64_t n = place.row * args.per_row; n < (place.row + 1) * args.per_row; ++n) {
      const int64_t at = (args.places ? args.places[n] : n) - args.first;
      if (at < 0 || at >= args.count) continue;
      if (!is_loaded) sum = load_four<kAligned>(out, left);
      is_loaded = true;
      const float weight = args.weights ? args.weights[at] : 1.0f;
      const Four x = load_four<kAligned>(args.x + at * args.width + i, left);
      KVCAL_UNROLL
      for (int j = 0; j < 4; ++j) sum.values[j] = sum.values[j] + weight * x.values[j];
    }
    if (is_loaded) store_four<kAligned>(out, sum, left);
  });
}

}  // namespace

void GpuBackend::do_copy_heads(const CopyHeadsArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       holds_fours(args.out.data, args.out.row_stride) &&
                       args.x.head_dim % 4 == 0 && args.out.head_dim % 4 == 0;
  const int64_t pieces = args.out.tokens * args.out.heads * ceil_div(args.width, 4);
  const Launch where = pieces_launch(stream(), pieces, properties_);
  with_flag(aligned, [&](auto is_aligned) {
    launch("copy_heads", where, copy_heads_kernel<decltype(is_aligned)::value>, args);
  });
}

void GpuBackend::do_gather_rows(const GatherRowsArgs& args) {
  const auto start = [&]<class Unit>(Unit) {
    const int64_t pieces =
        args.width * static_cast<int64_t>(bytes_of(args.type)) / static_cast<int64_t>(sizeof(Unit));
    launch("gather_rows", pieces_launch(stream(), args.count * pieces, properties_),
           gather_rows_kernel<Unit>, static_cast<const Unit*>(args.x), args.rows, args.count,
           pieces, static_cast<Unit*>(args.out));
  };
  const auto fits = [&](size_t bytes) {
    return static_cast<size_t>(args.width) * bytes_of(args.type) % bytes == 0 &&
           is_aligned(args.x, bytes) && is_aligned(args.out, bytes);
  };
  if (fits(16)) return start(Pack<uint32_t, 4>{});
  if (fits(4)) return start(uint32_t{});
  start(uint16_t{});
}

void GpuBackend::do_combine_rows(const CombineRowsArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x) && holds_fours(args.out);
  const Launch where = pieces_launch(stream(), args.rows * ceil_div(args.width, 4), properties_);
  with_flag(aligned, [&](auto is_aligned) {
    launch("combine_rows", where, combine_rows_kernel<decltype(is_aligned)::value>, args);
  });
}

}  // namespace kvcal::gpu
