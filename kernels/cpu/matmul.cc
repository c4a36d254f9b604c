#include <algorithm>
#include <cstring>

#include "kernels/cpu/aligned_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/cpu/kv_read-inl.h"
#include "kernels/cpu/vector-inl.h"

#ifndef KVCAL_KERNELS_CPU_MATMUL_ONCE
#define KVCAL_KERNELS_CPU_MATMUL_ONCE
namespace kvcal::cpu {
/// A finished tile and where it goes.
struct TileOutput {
  const float* tile = nullptr;  ///< [rows, width], contiguous
  int64_t rows = 0, width = 0;
  const float* bias = nullptr;  ///< [width], or null
  bool accumulate = false;
  /// Past the caches: the result is larger than they are, and nobody needs what was there.
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
  if (dtype == DType::kF32) return convert_as<float, Out>(in, count, out);
  if (dtype == DType::kF16) return convert_as<F16, Out>(in, count, out);
  if (dtype == DType::kF8E4M3)
    return read_fp8_row<fp8::Format::kE4m3Fn>(reinterpret_cast<const uint8_t*>(in), count, 1.0f,
                                              static_cast<Out*>(out));
  convert_as<BF16, Out>(in, count, out);
}

/// count elements of a checkpoint tensor as elements of a compute type.
void convert(DType dtype, const std::byte* in, int64_t count, ComputeType type, void* out) {
  if (type == ComputeType::kFloat32) return convert_to<float>(dtype, in, count, out);
  convert_to<BF16>(dtype, in, count, out);
}

HWY_INLINE VF finished(const TileOutput& output, VF v, int64_t column, const float* out) {
  if (output.bias) v = hn::Add(v, hn::LoadU(DF(), output.bias + column));
  return output.accumulate ? hn::Add(v, hn::LoadU(DF(), out)) : v;
}

void write_tile(const TileOutput& output) {
  for (int64_t row = 0; row < output.rows; ++row) {
    const float* tile = output.tile + row * output.width;
    float* out = output.out + row * output.out_stride;
    int64_t i = 0;
    for (; i + lanes() <= output.width; i += lanes()) {
      const VF v = finished(output, hn::LoadU(DF(), tile + i), i, out + i);
      if (output.streams) {
        hn::Stream(v, DF(), out + i);
      } else {
        hn::StoreU(v, DF(), out + i);
      }
    }
    for (; i < output.width; ++i) {
      const float sum = output.bias ? tile[i] + output.bias[i] : tile[i];
      out[i] = output.accumulate ? sum + out[i] : sum;
    }
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

/// Panels as wide as keeps one within half of a common level 2 cache.
constexpr int64_t kPanelBytes = int64_t{512} << 10;
constexpr int64_t kMinWidth = 64, kMaxWidth = 512;
/// Rows of x that one task multiplies by one panel: they stay in the level 2 cache, too.
constexpr int64_t kRowsBytes = int64_t{1} << 20;
constexpr int64_t kMaxRows = 1024;
/// Results larger than this are written past the caches.
constexpr int64_t kStreamBytes = int64_t{4} << 20;

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// Width of all panels but the last: the parts of out_features are about equal.
int64_t panel_width(int64_t out_features, int64_t row_bytes) {
  const int64_t fitting = kPanelBytes / std::max<int64_t>(1, row_bytes) / kMinWidth * kMinWidth;
  const int64_t widest = std::clamp(fitting, kMinWidth, kMaxWidth);
  const int64_t panels = (out_features + widest - 1) / widest;
  return round_up((out_features + panels - 1) / panels, kMinWidth);
}

struct PackedPanel {
  const Gemm* gemm = nullptr;
  PanelPointer panel;
  int64_t column = 0;
};

/// Points into the backend's GemmLibrary, so it must not outlive the backend.
class CpuMatrix : public PackedMatrix {
 public:
  ComputeType type = ComputeType::kFloat32;
  Buffer storage;
  std::vector<PackedPanel> panels;
};

/// Rows [begin, begin + count) of the concatenated parts, converted to type.
void gather_panel(std::span<const TensorView> parts, int64_t begin, int64_t count, ComputeType type,
                  std::byte* out) {
  const int64_t in = parts[0].shape[1];
  for (const TensorView& part : parts) {
    const int64_t rows = part.shape[0];
    const int64_t first = std::min(begin, rows), taken = std::min(count, rows - first);
    const int64_t element_bytes = bits_of_dtype(part.dtype) / 8;
    HWY_DYNAMIC_DISPATCH(convert)
    (part.dtype, part.bytes.data() + first * in * element_bytes, taken * in, type, out);
    out += taken * in * static_cast<int64_t>(bytes_of(type));
    begin -= first;
    count -= taken;
  }
}

/// One call of matmul: its rows in groups, the last of them padded.
class Multiplication {
 public:
  Multiplication(const MatmulArgs& args, const CpuMatrix& weight)
      : args_(args),
        weight_(weight),
        row_bytes_(weight.in_features * static_cast<int64_t>(bytes_of(weight.type))),
        out_stride_(args.out_stride == 0 ? weight.out_features : args.out_stride) {
    const int64_t fitting = kRowsBytes / std::max<int64_t>(1, row_bytes_) / Gemm::kTallest;
    group_rows_ = std::clamp(fitting * Gemm::kTallest, Gemm::kTallest, kMaxRows);
    streams_ = !args.accumulate && args.rows * weight.out_features * 4 > kStreamBytes &&
               reinterpret_cast<uintptr_t>(args.out) % 64 == 0 && out_stride_ % 16 == 0;
  }

  int64_t tasks() const {
    const int64_t groups = (args_.rows + group_rows_ - 1) / group_rows_;
    return groups * static_cast<int64_t>(weight_.panels.size());
  }

  void run(int64_t task, int thread, Scratch& scratch) const {
    const int64_t num_panels = static_cast<int64_t>(weight_.panels.size());
    const PackedPanel& panel = weight_.panels[static_cast<size_t>(task % num_panels)];
    const int64_t begin = task / num_panels * group_rows_;
    const int64_t end = std::min(args_.rows, begin + group_rows_);
    float* tile = scratch.get<float>(Gemm::kTallest * (kMaxWidth + (row_bytes_ + 3) / 4));
    for (int64_t row = begin; row < end;) {
      const int64_t height = panel.gemm->height_for(end - row);
      const int64_t rows = std::min(height, end - row);
      const void* x = rows_at(row, rows, height, tile + Gemm::kTallest * kMaxWidth);
      panel.gemm->run(height, x, *panel.panel, tile, thread);
      HWY_DYNAMIC_DISPATCH(write_tile)(output(panel, tile, row, rows));
      row += rows;
    }
  }

 private:
  /// Rows of x, copied with zeros behind where the tile is higher than what is left.
  const void* rows_at(int64_t row, int64_t rows, int64_t height, void* padded) const {
    const auto* x = static_cast<const std::byte*>(args_.x) + row * row_bytes_;
    if (rows == height) return x;
    std::memcpy(padded, x, static_cast<size_t>(rows * row_bytes_));
    std::memset(static_cast<std::byte*>(padded) + rows * row_bytes_, 0,
                static_cast<size_t>((height - rows) * row_bytes_));
    return padded;
  }

  TileOutput output(const PackedPanel& panel, const float* tile, int64_t row, int64_t rows) const {
    return {.tile = tile,
            .rows = rows,
            .width = panel.gemm->shape().width,
            .bias = args_.bias ? args_.bias + panel.column : nullptr,
            .accumulate = args_.accumulate,
            .streams = streams_,
            .out = args_.out + row * out_stride_ + panel.column,
            .out_stride = out_stride_};
  }

  const MatmulArgs& args_;
  const CpuMatrix& weight_;
  int64_t row_bytes_;
  int64_t out_stride_;
  int64_t group_rows_ = 0;
  bool streams_ = false;
};

}  // namespace

std::unique_ptr<PackedMatrix> CpuBackend::pack(std::span<const TensorView> parts,
                                               ComputeType type) {
  return pack_checked(parts, checked_pack_shape(parts), type);
}

std::unique_ptr<PackedMatrix> CpuBackend::pack_checked(std::span<const TensorView> parts,
                                                       const PackShape& shape, ComputeType type) {
  use_one_thread_here();
  const int64_t row_bytes = shape.in_features * static_cast<int64_t>(bytes_of(type));
  auto packed = std::make_unique<CpuMatrix>();
  packed->out_features = shape.out_features;
  packed->in_features = shape.in_features;
  packed->type = type;
  if (shape.out_features == 0) return packed;
  const int64_t width = panel_width(shape.out_features, row_bytes);
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (int64_t column = 0; column < shape.out_features; column += width) {
    const int64_t here = std::min(width, shape.out_features - column);
    const Gemm& gemm = gemms_.get({.type = type, .depth = shape.in_features, .width = here});
    packed->panels.push_back({&gemm, nullptr, column});
    offsets.push_back(bytes);
    bytes += (gemm.panel_bytes() + 63) / 64 * 64;
  }
  packed->storage = allocate(bytes);
  packed->bytes = bytes;
  pool_.parallel_for(static_cast<int64_t>(offsets.size()), [&](int64_t index, int thread) {
    const size_t i = static_cast<size_t>(index);
    PackedPanel& panel = packed->panels[i];
    const int64_t rows = panel.gemm->shape().width;
    auto* converted = scratch_[static_cast<size_t>(thread)].get<std::byte>(rows * row_bytes);
    gather_panel(parts, panel.column, rows, type, converted);
    panel.panel = panel.gemm->pack(converted, packed->storage.data() + offsets[i], thread);
  });
  return packed;
}

void CpuBackend::matmul(const MatmulArgs& args) {
  use_one_thread_here();
  const auto* weight = dynamic_cast<const CpuMatrix*>(&args.weight);
  KVCAL_CHECK(weight != nullptr && args.rows >= 0);
  KVCAL_CHECK(args.out_stride == 0 || args.out_stride >= weight->out_features);
  const Multiplication multiplication(args, *weight);
  pool_.parallel_for(multiplication.tasks(), [&](int64_t task, int thread) {
    multiplication.run(task, thread, scratch_[static_cast<size_t>(thread)]);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
