#include "kernels/cpu/onednn_gemm.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "core/error.h"
#include "core/number.h"
#include "kernels/cpu/gemm.h"
#include "quant/half.h"

namespace kvcal::cpu {

#ifdef KVCAL_NO_ONEDNN

std::string dnn_implementation(const DnnSession&, ComputeType) {
  return "";
}

std::unique_ptr<Gemm> make_dnn_gemm(DnnSession&, const PanelShape&) {
  fail("this build has no oneDNN");
}

#else

namespace {

using Memory = dnnl::memory;

constexpr std::array<int64_t, 5> kHeights{1, 4, 16, 64, kDnnTallest};
/// Reference height for the order of sums: low enough for decoding, high enough to fill an AMX
/// tile.
constexpr int64_t kJudge = 16;

Memory::data_type data_type_of(ComputeType type) {
  KVCAL_CHECK(type != ComputeType::kFloat16);
  return type == ComputeType::kBFloat16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

Memory::desc row_major(int64_t rows, int64_t columns, Memory::data_type type) {
  return {{rows, columns}, type, Memory::dims{columns, 1}};
}

/// Throws bad_alloc where there is no room for generated code: oneDNN 2.6 writes it without a check
/// of its allocation, so a process at its limit would die from a signal.
void expect_room_for_code() {
  constexpr size_t kBytes = size_t{16} << 20;
  void* room = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  ::munmap(room, kBytes);
}

struct Tile {
  dnnl::matmul primitive;
  Memory::desc x, out, scratchpad;
  bool is_exact = true;  ///< gives kJudge's bytes
};

/// Values in [-1, 1) of type, equal in every run.
std::vector<std::byte> noise(int64_t count, ComputeType type) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * bytes_of(type));
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    const BF16 half = to_bf16(value);
    const void* element = type == ComputeType::kBFloat16 ? static_cast<const void*>(&half) : &value;
    std::memcpy(bytes.data() + static_cast<size_t>(i) * bytes_of(type), element, bytes_of(type));
  }
  return bytes;
}

class DnnGemm : public Gemm {
 public:
  DnnGemm(DnnSession& session, const PanelShape& shape)
      : Gemm({.shape = shape, .x_stride = shape.depth, .out_stride = shape.width}),
        session_(session),
        panel_({shape.depth, shape.width}, data_type_of(shape.type), Memory::format_tag::any) {
    for (size_t i = kHeights.size(); i-- > 0;)  // the tallest chooses the panel's layout
      tiles_[i] = make_tile(kHeights[i]);
    layout_.panel_bytes = panel_.get_size();
    find_columns();
    layout_.pack_step = columns_ > 0 ? kPackedRows : shape.width;
    compare_heights();
  }

  void pack(int64_t first, int64_t count, const void* rows, std::byte* panel,
            int thread) const override {
    if (columns_ > 0) return pack_rows(first, count, static_cast<const BF16*>(rows), panel);
    KVCAL_CHECK(count == shape_.width);
    // Row-major [width, depth] is column-major [depth, width]; oneDNN only reads it.
    Memory source(
        {{shape_.depth, shape_.width}, data_type_of(shape_.type), Memory::dims{1, shape_.depth}},
        session_.engine, const_cast<void*>(rows));
    Memory packed(panel_, session_.engine, panel);
    expect_room_for_code();
    dnnl::reorder(source, packed)
        .execute(session_.streams[static_cast<size_t>(thread)], source, packed);
  }

  int64_t height_for(int64_t rows) const override {
    for (size_t i = kHeights.size(); kHeights[--i] >= kJudge;)
      if (tiles_[i].is_exact && kHeights[i] <= rows) return kHeights[i];
    size_t i = 0;  // fewer than kJudge: the next one up, padded
    while (!tiles_[i].is_exact || kHeights[i] < rows) ++i;
    return kHeights[i];
  }

  void run(int64_t height, const void* x, const std::byte* panel, const GemmResult& result,
           int thread) const override {
    KVCAL_CHECK(result.stride == shape_.width && !result.start && !result.accumulate);
    size_t index = 0;
    while (kHeights[index] != height) ++index;
    const Tile& tile = tiles_[index];
    std::byte* working_memory = session_.scratchpads[static_cast<size_t>(thread)].get<std::byte>(
        static_cast<int64_t>(tile.scratchpad.get_size()));
    tile.primitive.execute(
        session_.streams[static_cast<size_t>(thread)],
        {{DNNL_ARG_SRC, Memory(tile.x, session_.engine, const_cast<void*>(x))},
         {DNNL_ARG_WEIGHTS, Memory(panel_, session_.engine, const_cast<std::byte*>(panel))},
         {DNNL_ARG_DST, Memory(tile.out, session_.engine, result.out)},
         {DNNL_ARG_SCRATCHPAD, Memory(tile.scratchpad, session_.engine, working_memory)}});
  }

 private:
  Tile make_tile(int64_t height) {
    Tile tile{.primitive = {},
              .x = row_major(height, shape_.depth, data_type_of(shape_.type)),
              .out = row_major(height, shape_.width, Memory::data_type::f32),
              .scratchpad = {}};
    const auto desc = describe_matmul(session_.engine, tile.x, panel_, tile.out);
    expect_room_for_code();
    tile.primitive = dnnl::matmul(desc);
    tile.scratchpad = desc.scratchpad_desc();
    panel_ = desc.weights_desc();
    return tile;
  }

  /// Rows that pack_rows takes at a time: the columns of a cache line.
  static constexpr int64_t kPackedRows = 16;

  /// pack in a layout of PairColumns.
  void pack_rows(int64_t first, int64_t count, const BF16* rows, std::byte* panel) const {
    const int64_t group = first / columns_ * columns_;
    auto* pairs = reinterpret_cast<uint32_t*>(panel) + group * shape_.depth / 2;
    if (first == group && shape_.width - group < columns_)  // what no row fills
      std::memset(pairs, 0, static_cast<size_t>(columns_ * shape_.depth) * sizeof(BF16));
    pack_pair_columns(rows, count, shape_.depth / 2,
                      {.columns = columns_, .out = pairs + (first - group)});
  }

  /// Finds the group of columns with which pack_rows gives the bytes of oneDNN's own reorder, which
  /// takes several times as long.
  void find_columns() {
    if (shape_.type != ComputeType::kBFloat16 || shape_.depth % 32 != 0 ||
        shape_.width % kPackedRows != 0)
      return;
    const auto weight = noise(shape_.width * shape_.depth, shape_.type);
    const auto bytes = static_cast<int64_t>(layout_.panel_bytes);
    Scratch expected, actual;
    pack(0, shape_.width, weight.data(), expected.get<std::byte>(bytes), 0);
    const size_t step = static_cast<size_t>(kPackedRows * shape_.depth) * sizeof(BF16);
    for (const int64_t columns : {64, 48, 32, 16}) {
      if (round_up(shape_.width, columns) * shape_.depth * 2 != bytes) continue;
      columns_ = columns;
      for (int64_t row = 0; row < shape_.width; row += kPackedRows)
        pack(row, kPackedRows, weight.data() + static_cast<size_t>(row / kPackedRows) * step,
             actual.get<std::byte>(bytes), 0);
      if (std::memcmp(expected.get<std::byte>(bytes), actual.get<std::byte>(bytes),
                      layout_.panel_bytes) == 0)
        return;
    }
    columns_ = 0;
  }

  /// Excludes the heights whose sums have another order than kJudge's.
  void compare_heights() {
    const size_t row_bytes = static_cast<size_t>(shape_.depth) * bytes_of(shape_.type);
    Scratch storage, expected_memory, actual_memory;
    const auto weight = noise(shape_.width * shape_.depth, shape_.type);
    const auto x = noise(kDnnTallest * shape_.depth, shape_.type);
    auto* panel = storage.get<std::byte>(static_cast<int64_t>(layout_.panel_bytes));
    const int64_t step = layout_.pack_step;
    for (int64_t row = 0; row < shape_.width; row += step)
      pack(row, std::min(step, shape_.width - row),
           weight.data() + static_cast<size_t>(row) * row_bytes, panel, 0);
    auto* expected = expected_memory.get<float>(kDnnTallest * shape_.width);
    auto* actual = actual_memory.get<float>(kDnnTallest * shape_.width);
    const auto run_at = [&](int64_t height, float* out) {
      for (int64_t row = 0; row < kDnnTallest; row += height)
        run(height, x.data() + static_cast<size_t>(row) * row_bytes, panel,
            {.out = out + row * shape_.width, .stride = shape_.width}, 0);
    };
    run_at(kJudge, expected);
    for (size_t i = 0; i < kHeights.size(); ++i) {
      run_at(kHeights[i], actual);
      tiles_[i].is_exact =
          std::memcmp(actual, expected,
                      static_cast<size_t>(kDnnTallest * shape_.width) * sizeof(float)) == 0;
    }
  }

  DnnSession& session_;
  const PanelShape& shape_ = layout_.shape;
  Memory::desc panel_;
  int64_t columns_ = 0;  ///< of PairColumns; 0: oneDNN packs
  std::array<Tile, kHeights.size()> tiles_;
};

}  // namespace

std::string dnn_implementation(const DnnSession& session, ComputeType type) {
  const Memory::data_type data_type = data_type_of(type);
  try {
    return describe_matmul(session.engine, row_major(kDnnTallest, 64, data_type),
                           {{64, 64}, data_type, Memory::format_tag::any},
                           row_major(kDnnTallest, 64, Memory::data_type::f32))
        .impl_info_str();
  } catch (const dnnl::error&) {
    return "";
  }
}

std::unique_ptr<Gemm> make_dnn_gemm(DnnSession& session, const PanelShape& shape) {
  try {
    return std::make_unique<DnnGemm>(session, shape);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    fail("oneDNN cannot multiply ", name_of(shape.type), " by [", shape.width, ", ", shape.depth,
         "]: ", error.what());
  }
}

#endif

}  // namespace kvcal::cpu
