#include <algorithm>
#include <cstring>

#include "core/number.h"
#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/with_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/vector-inl.h"

#ifndef KVCAL_KERNELS_CPU_MATMUL_ONCE
#define KVCAL_KERNELS_CPU_MATMUL_ONCE
namespace kvcal::cpu {
/// A finished tile and its destination.
struct TileOutput {
  float* tile = nullptr;  ///< [rows, width] with row stride tile_stride
  int64_t tile_stride = 0;
  int64_t rows = 0, width = 0;
  const float* bias = nullptr;  ///< [width], or null
  bool accumulate = false;
  /// Writes past the caches: the result is larger than they are, and its old content is not needed.
  bool streams = false;
  float* out = nullptr;  ///< [rows, width] with row stride out_stride
  int64_t out_stride = 0;
};
}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

template <class In, class Out>
void convert_as(const std::byte* in, int64_t count, void* out) {
  const AlignedView<In> stored(in, count);
  convert_row(stored.data(), count, static_cast<Out*>(out));
}

template <class Out>
void convert_to(DType dtype, const std::byte* in, int64_t count, void* out) {
  if (dtype == DType::kF8E4M3)
    return read_fp8_row<fp8::Format::kE4m3Fn>(reinterpret_cast<const uint8_t*>(in), count, 1.0f,
                                              static_cast<Out*>(out));
  with_type(dtype, [&](auto stored) { convert_as<decltype(stored), Out>(in, count, out); });
}

/// Converts count elements of a checkpoint tensor to a compute type.
void convert(DType dtype, const std::byte* in, int64_t count, ComputeType type, void* out) {
  if (type == ComputeType::kFloat32) return convert_to<float>(dtype, in, count, out);
  convert_to<BF16>(dtype, in, count, out);
}

void write_tile(const TileOutput& output) {
  for (int64_t row = 0; row < output.rows; ++row) {
    const float* tile = output.tile + row * output.tile_stride;
    float* out = output.out + row * output.out_stride;
    for_vectors(output.width, [&](auto at) HWY_ATTR {
      VF v = at.load(tile);
      if (output.bias) v = hn::Add(v, at.load(output.bias));
      if (output.accumulate) v = hn::Add(v, at.load(out));
      if (at.kIsWhole && output.streams)
        hn::Stream(v, DF(), out + at.i);
      else
        at.store(v, out);
    });
  }
  if (output.streams) hwy::FlushStream();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(convert);
HWY_EXPORT(write_tile);

namespace {

/// Results larger than this are written past the caches.
constexpr int64_t kStreamBytes = int64_t{4} << 20;
constexpr int64_t kWidthStep = 64;
/// Rows that a thread decodes at a time: they stay in a cache, and share lines where the file holds
/// columns.
constexpr int64_t kDecodedRows = 64;

/// Width of all panels but the last, so that panels are about equal.
int64_t panel_width(int64_t out_features, int64_t max_width) {
  const int64_t panels = (out_features + max_width - 1) / max_width;
  return round_up((out_features + panels - 1) / panels, kWidthStep);
}

struct PackedPanel {
  const Gemm* gemm = nullptr;
  std::byte* data = nullptr;
  int64_t column = 0;

  const Gemm::Layout& layout() const { return gemm->layout(); }
};

/// Points into the backend's GemmLibrary, so it must not outlive the backend.
class CpuMatrix : public PackedMatrix {
 public:
  ComputeType type = ComputeType::kFloat32;
  Buffer storage;
  /// Panels in the order of their columns. An even number of columns is divided into two equal
  /// halves, so that gate and up have panels of the same widths.
  std::vector<PackedPanel> panels;
  GemmBlocking blocking;
};

DType stored_as(ComputeType type) {
  return type == ComputeType::kFloat32 ? DType::kF32 : DType::kBF16;
}

/// Rows [begin, begin + count) of the concatenated parts as elements of type: in place if they have
/// the type and are contiguous and aligned, else converted into out.
const void* weight_rows_at(std::span<const TensorView> parts, int64_t begin, int64_t count,
                           ComputeType type, std::byte* out) {
  const int64_t in = parts[0].shape[1];
  std::byte* const gathered = out;
  for (const TensorView& part : parts) {
    const int64_t rows = part.shape[0];
    const int64_t first = std::min(begin, rows), taken = std::min(count, rows - first);
    const int64_t element_bytes = bits_of_dtype(part.dtype) / 8;
    const std::byte* stored = part.bytes.data() + first * in * element_bytes;
    const bool is_whole = gathered == out && taken == count && part.dtype == stored_as(type);
    if (is_whole && reinterpret_cast<uintptr_t>(stored) % sizeof(float) == 0) return stored;
    HWY_DYNAMIC_DISPATCH(convert)(part.dtype, stored, taken * in, type, out);
    out += taken * in * static_cast<int64_t>(bytes_of(type));
    begin -= first;
    count -= taken;
  }
  return gathered;
}

const CpuMatrix& checked(const PackedMatrix& weight) {
  const auto* matrix = dynamic_cast<const CpuMatrix*>(&weight);
  KVCAL_CHECK(matrix != nullptr);
  return *matrix;
}

/// Multiplies blocks of rows by panels, in the order of matmul and matmul_activate.
class RowBlocks {
 public:
  RowBlocks(const CpuMatrix& weight, const void* x, int64_t rows)
      : weight_(weight),
        x_(static_cast<const std::byte*>(x)),
        rows_(rows),
        row_bytes_(weight.in_features * static_cast<int64_t>(bytes_of(weight.type))) {
    if (weight.panels.empty()) return;
    blocks_ = (rows + weight.blocking.rows - 1) / weight.blocking.rows;
    if (blocks_ > 0) block_rows_ = round_up((rows + blocks_ - 1) / blocks_, kRowStep);
    for (const PackedPanel& panel : weight.panels) {
      tile_size_ = std::max(tile_size_, weight.blocking.tallest * panel.layout().out_stride);
      x_size_ = std::max(x_size_, weight.blocking.tallest * panel.layout().x_stride *
                                      static_cast<int64_t>(bytes_of(weight.type)));
    }
  }

  int64_t blocks() const { return blocks_; }
  /// Floats that multiply needs for each result, rounded up to cache lines; after them come bytes
  /// for rows that must be copied.
  int64_t tile_size() const { return round_up(tile_size_, 16); }
  int64_t scratch_size(int64_t tiles) const { return tiles * tile_size() + (x_size_ + 3) / 4; }

  /// Calls use(row, rows, height) for all rows of a block; height is for multiply.
  template <class Use>
  void for_heights(int64_t block, const Use& use) const {
    const int64_t end = std::min(rows_, (block + 1) * block_rows_);
    for (int64_t row = block * block_rows_; row < end;) {
      const int64_t height = weight_.panels[0].gemm->height_for(end - row);
      const int64_t rows = std::min(height, end - row);
      use(row, rows, height);
      row += rows;
    }
  }

  /// Rows of x, padded with zeros where the panels need more rows; else in place.
  const void* rows_at(int64_t row, int64_t rows, int64_t height, void* padded) const {
    const std::byte* x = x_ + row * row_bytes_;
    const int64_t stride =
        weight_.panels[0].layout().x_stride * static_cast<int64_t>(bytes_of(weight_.type));
    if (rows == height && stride == row_bytes_) return x;
    auto* out = static_cast<std::byte*>(padded);
    std::memset(out, 0, static_cast<size_t>(height * stride));
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(out + i * stride, x + i * row_bytes_, static_cast<size_t>(row_bytes_));
    return padded;
  }

 private:
  static constexpr int64_t kRowStep = 32;
  const CpuMatrix& weight_;
  const std::byte* x_;
  int64_t rows_, row_bytes_;
  int64_t blocks_ = 0, block_rows_ = 0;
  int64_t tile_size_ = 0, x_size_ = 0;
};

/// One call of matmul.
class Multiplication {
 public:
  Multiplication(const MatmulArgs& args, const CpuMatrix& weight)
      : args_(args),
        weight_(weight),
        blocks_(weight, args.x, args.rows),
        out_stride_(args.out_row_stride()) {
    streams_ = !args.accumulate && args.rows * weight.out_features * 4 > kStreamBytes &&
               reinterpret_cast<uintptr_t>(args.out) % 64 == 0 && out_stride_ % 16 == 0;
  }

  int64_t tasks() const { return blocks_.blocks() * static_cast<int64_t>(weight_.panels.size()); }

  void run(int64_t task, int thread, Scratch& scratch) const {
    const int64_t num_panels = static_cast<int64_t>(weight_.panels.size());
    const PackedPanel& panel = weight_.panels[static_cast<size_t>(task % num_panels)];
    float* tile = scratch.get<float>(blocks_.scratch_size(1));
    blocks_.for_heights(task / num_panels, [&](int64_t row, int64_t rows, int64_t height) {
      const void* x = blocks_.rows_at(row, rows, height, tile + blocks_.tile_size());
      const TileOutput output{.tile = tile,
                              .tile_stride = panel.layout().out_stride,
                              .rows = rows,
                              .width = panel.layout().shape.width,
                              .out = args_.out + row * out_stride_ + panel.column,
                              .out_stride = out_stride_};
      panel.layout().runs_in_place && !streams_ && !(args_.accumulate && args_.bias)
          ? run_in_place(panel, x, height, output, thread)
          : run_apart(panel, x, height, output, thread);
    });
  }

 private:
  const float* bias_of(const PackedPanel& panel) const {
    return args_.bias ? args_.bias + panel.column : nullptr;
  }

  /// Writes results once, in place. Padding rows are not written, and the order of the others' sums
  /// does not change.
  void run_in_place(const PackedPanel& panel, const void* x, int64_t height,
                    const TileOutput& output, int thread) const {
    GemmResult result{.out = output.out,
                      .stride = output.out_stride,
                      .start = bias_of(panel),
                      .accumulate = args_.accumulate};
    if (output.rows == height) return panel.gemm->run(height, x, panel.data, result, thread);
    float* tile = output.tile;
    const auto row_bytes = static_cast<size_t>(output.width) * sizeof(float);
    std::memset(tile, 0, static_cast<size_t>(height) * row_bytes);
    for (int64_t row = 0; args_.accumulate && row < output.rows; ++row)
      std::memcpy(tile + row * output.width, output.out + row * output.out_stride, row_bytes);
    result.out = tile;
    result.stride = output.width;
    panel.gemm->run(height, x, panel.data, result, thread);
    for (int64_t row = 0; row < output.rows; ++row)
      std::memcpy(output.out + row * output.out_stride, tile + row * output.width, row_bytes);
  }

  void run_apart(const PackedPanel& panel, const void* x, int64_t height, TileOutput output,
                 int thread) const {
    // A bias must be added first for fewer rows, too, where the same call may run them in place.
    const bool starts_with_bias = panel.layout().runs_in_place && !args_.accumulate;
    panel.gemm->run(height, x, panel.data,
                    {.out = output.tile,
                     .stride = output.tile_stride,
                     .start = starts_with_bias ? bias_of(panel) : nullptr},
                    thread);
    output.bias = starts_with_bias ? nullptr : bias_of(panel);
    output.accumulate = args_.accumulate;
    output.streams = streams_ && panel.column % 16 == 0;
    HWY_DYNAMIC_DISPATCH(write_tile)(output);
  }

  const MatmulArgs& args_;
  const CpuMatrix& weight_;
  RowBlocks blocks_;
  int64_t out_stride_;
  bool streams_ = false;
};

/// A group of matmul_activate: a panel of gate and the adjacent one of up, activated while both
/// results are in cache.
class Activated {
 public:
  /// first_row: of the group, among the rows of all.
  Activated(const MatmulActivateArgs& args, const RowGroup& group, int64_t first_row)
      : args_(args),
        group_(group),
        first_row_(first_row),
        weight_(checked(group.weight)),
        halves_(args.gated ? 2 : 1),
        blocks_(weight_,
                static_cast<const std::byte*>(args.x) +
                    static_cast<size_t>(first_row * weight_.in_features) * bytes_of(weight_.type),
                group.rows) {}

  int64_t tasks() const { return blocks_.blocks() * panels(); }

  void run(int64_t task, int thread, Scratch& scratch) const {
    const int64_t index = task % panels();
    float* gate = scratch.get<float>(blocks_.scratch_size(halves_));
    float* up = args_.gated ? gate + blocks_.tile_size() : nullptr;
    blocks_.for_heights(task / panels(), [&](int64_t row, int64_t rows, int64_t height) {
      const void* x = blocks_.rows_at(row, rows, height, gate + halves_ * blocks_.tile_size());
      const PackedPanel& first = multiply(index, height, rows, x, gate, thread);
      if (up) multiply(panels() + index, height, rows, x, up, thread);
      const int64_t element = (first_row_ + row) * args_.width + first.column;
      fold_into(group_.seen,
                activate_block({.gate = gate,
                                .up = up,
                                .x_stride = first.layout().out_stride,
                                .rows = rows,
                                .width = first.layout().shape.width,
                                .activation = args_.activation,
                                .out_type = args_.out_type,
                                .out = static_cast<std::byte*>(args_.out) +
                                       element * static_cast<int64_t>(bytes_of(args_.out_type)),
                                .out_stride = args_.width}));
    });
  }

 private:
  int64_t panels() const { return static_cast<int64_t>(weight_.panels.size()) / halves_; }

  const PackedPanel& multiply(int64_t index, int64_t height, int64_t rows, const void* x,
                              float* tile, int thread) const {
    const PackedPanel& panel = weight_.panels[static_cast<size_t>(index)];
    const int64_t stride = panel.layout().out_stride;
    const float* bias = group_.bias ? group_.bias + panel.column : nullptr;
    // Where a matmul begins with the bias, this must, too: some devices run the one for the other.
    const float* start = panel.layout().runs_in_place ? bias : nullptr;
    panel.gemm->run(height, x, panel.data, {.out = tile, .stride = stride, .start = start}, thread);
    if (bias && !start) HWY_DYNAMIC_DISPATCH(write_tile)
    ({.tile = tile,
      .tile_stride = stride,
      .rows = rows,
      .width = panel.layout().shape.width,
      .bias = bias,
      .out = tile,
      .out_stride = stride});
    return panel;
  }

  const MatmulActivateArgs& args_;
  const RowGroup& group_;
  int64_t first_row_;
  const CpuMatrix& weight_;
  int64_t halves_;
  RowBlocks blocks_;
};

}  // namespace

std::unique_ptr<PackedMatrix> CpuBackend::pack(std::span<const TensorView> parts,
                                               ComputeType type) {
  return pack_checked(parts, checked_pack_shape(parts), type);
}

std::unique_ptr<PackedMatrix> CpuBackend::pack_checked(std::span<const TensorView> parts,
                                                       const PackShape& shape, ComputeType type) {
  const int64_t row_bytes = shape.in_features * static_cast<int64_t>(bytes_of(type));
  return pack_rows(shape, type, 1, [&](int64_t first, int64_t count, int thread) {
    auto* converted = scratch_[static_cast<size_t>(thread)].get<std::byte>(count * row_bytes);
    return weight_rows_at(parts, first, count, type, converted);
  });
}

std::unique_ptr<PackedMatrix> CpuBackend::pack_decoded(std::span<const DecodedRows> parts,
                                                       ComputeType type) {
  const PackShape shape = checked_pack_shape(parts);
  const int64_t row_bytes = shape.in_features * static_cast<int64_t>(bytes_of(type));
  return pack_rows(shape, type, kDecodedRows, [&](int64_t first, int64_t count, int thread) {
    const auto own = static_cast<size_t>(thread);
    auto* rows = scratch_[own].get<std::byte>(count * row_bytes);
    if (type == ComputeType::kFloat32) {
      decode_rows(parts, first, count, reinterpret_cast<float*>(rows));
      return static_cast<const void*>(rows);
    }
    for (int64_t done = 0; done < count; done += kDecodedRows) {
      const int64_t here = std::min(kDecodedRows, count - done),
                    elements = here * shape.in_features;
      auto* decoded = decoded_[own].get<float>(elements);
      decode_rows(parts, first + done, here, decoded);
      HWY_DYNAMIC_DISPATCH(convert)
      (DType::kF32, reinterpret_cast<const std::byte*>(decoded), elements, type,
       rows + done * row_bytes);
    }
    return static_cast<const void*>(rows);
  });
}

uint64_t CpuBackend::decoded_bytes(int64_t rows, int64_t width) const {
  const int64_t together = kDecodedRows * pool_.num_threads();
  return static_cast<uint64_t>(std::min(rows, together) * width) * sizeof(float);
}

std::unique_ptr<PackedMatrix> CpuBackend::pack_rows(const PackShape& shape, ComputeType type,
                                                    int64_t least_rows, const ReadRows& read) {
  use_one_thread_here();
  const int64_t row_bytes = shape.in_features * static_cast<int64_t>(bytes_of(type));
  auto packed = std::make_unique<CpuMatrix>();
  packed->out_features = shape.out_features;
  packed->in_features = shape.in_features;
  packed->type = type;
  if (shape.out_features == 0) return packed;
  packed->blocking = gemms_.blocking(type, shape.in_features);
  const int64_t half = shape.out_features / (shape.out_features % 2 == 0 ? 2 : 1);
  const int64_t width = panel_width(half, packed->blocking.max_width);
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (int64_t column = 0, here = 0; column < shape.out_features; column += here) {
    here = std::min(width, half - column % half);
    const Gemm& gemm = gemms_.get({.type = type, .depth = shape.in_features, .width = here});
    packed->panels.push_back({&gemm, nullptr, column});
    offsets.push_back(bytes);
    bytes += (gemm.layout().panel_bytes + 63) / 64 * 64;
  }
  packed->storage = allocate(bytes);
  packed->bytes = bytes;
  pool_.parallel_for(static_cast<int64_t>(offsets.size()), [&](int64_t index, int thread) {
    const size_t i = static_cast<size_t>(index);
    PackedPanel& panel = packed->panels[i];
    const Gemm& gemm = *panel.gemm;
    panel.data = packed->storage.data() + offsets[i];
    const int64_t step = gemm.layout().pack_step, width = gemm.layout().shape.width;
    const int64_t together = round_up(std::min(least_rows, width), step);
    for (int64_t row = 0; row < width; row += together) {
      const int64_t count = std::min(together, width - row);
      const auto* rows = static_cast<const std::byte*>(read(panel.column + row, count, thread));
      for (int64_t done = 0; done < count; done += step)
        gemm.pack(row + done, std::min(step, count - done), rows + done * row_bytes, panel.data,
                  thread);
    }
  });
  return packed;
}

void CpuBackend::do_matmul(const MatmulArgs& args) {
  use_one_thread_here();
  const CpuMatrix& weight = checked(args.weight);
  const Multiplication multiplication(args, weight);
  pool_.parallel_for(multiplication.tasks(), [&](int64_t task, int thread) {
    multiplication.run(task, thread, scratch_[static_cast<size_t>(thread)]);
  });
}

void CpuBackend::do_matmul_activate(const MatmulActivateArgs& args) {
  use_one_thread_here();
  int64_t row = 0;
  for (const RowGroup& group : args.groups) {
    const Activated activated(args, group, row);
    pool_.parallel_for(activated.tasks(), [&](int64_t task, int thread) {
      activated.run(task, thread, scratch_[static_cast<size_t>(thread)]);
    });
    row += group.rows;
  }
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
