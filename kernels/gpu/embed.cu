#include <algorithm>
#include <cstring>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

/// Copies elements in the file's type to their places in out.
template <class T>
__global__ void embed_kernel(const T* table, int64_t count, float multiplier, bool accumulate,
                             float* out) {
  for_pieces(count, [&](int64_t i) {
    const float value = multiplier * to_float(table[i]);
    out[i] = accumulate ? out[i] + value : value;
  });
}

/// The same for rows of a table on the device; count: elements of all rows.
template <class T>
__global__ void gather_embed_kernel(const T* table, const int32_t* ids, int64_t hidden,
                                    int64_t count, float multiplier, bool accumulate, float* out) {
  for_pieces(count, [&](int64_t i) {
    const Place place = place_of(i, hidden);
    const float value = multiplier * to_float(table[ids[place.row] * hidden + place.piece]);
    out[i] = accumulate ? out[i] + value : value;
  });
}

/// Copies elements [begin, begin + count) of the concatenated rows in ids to `to`.
void gather(const EmbedArgs& args, int64_t begin, int64_t count, std::byte* to) {
  const int64_t hidden = args.table.shape[1];
  const auto bytes = static_cast<int64_t>(bits_of_dtype(args.table.dtype) / 8);
  for (const int64_t end = begin + count; begin < end;) {
    const int64_t row = begin / hidden, column = begin % hidden;
    const int64_t part = std::min(hidden - column, end - begin);
    const int64_t from = args.ids[static_cast<size_t>(row)] * hidden + column;
    std::memcpy(to, args.table.bytes.data() + from * bytes, static_cast<size_t>(part * bytes));
    to += part * bytes;
    begin += part;
  }
}

}  // namespace

void GpuBackend::do_embed(const EmbedArgs& args) {
  const auto bytes = static_cast<int64_t>(bits_of_dtype(args.table.dtype) / 8);
  const int64_t count = static_cast<int64_t>(args.ids.size()) * args.table.shape[1];
  if (count == 0) return;
  if (args.resident) {
    const Buffer ids = allocate(args.ids.size_bytes());
    copy_in(std::as_bytes(args.ids), ids.data());
    return with_type(args.table.dtype, [&]<class T>(T) {
      launch("embed", on_pieces(count), gather_embed_kernel<T>,
             reinterpret_cast<const T*>(args.resident), ids.as<int32_t>(), args.table.shape[1],
             count, args.multiplier, args.accumulate, args.out);
    });
  }
  const int64_t most = static_cast<int64_t>(small_.chunk_bytes()) / bytes;
  // The stream processes chunks in order, so all of them can share one buffer.
  const Buffer table = allocate(static_cast<size_t>(std::min(most, count) * bytes));
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t part = std::min(most, count - begin);
    const auto part_bytes = static_cast<size_t>(part * bytes);
    Staging::Chunk& chunk = small_.next(part_bytes);
    gather(args, begin, part, chunk.data());
    stream().copy(table.data(), chunk.data(), part_bytes);
    chunk.copied_by(compute_);
    with_type(args.table.dtype, [&]<class T>(T) {
      launch("embed", on_pieces(part), embed_kernel<T>, table.as<T>(), part, args.multiplier,
             args.accumulate, args.out + begin);
    });
  }
}

}  // namespace kvcal::gpu
