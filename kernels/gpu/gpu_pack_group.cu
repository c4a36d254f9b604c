#include "kernels/gpu/gpu_matrix.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>

#include "backend/pack_shape.h"
#include "core/process.h"

namespace kvcal::gpu {

/// Rows of a matrix as the host has them.
struct HostRows {
  DType dtype;
  size_t bytes = 0;
  size_t unit = 1;  ///< bytes that are filled together
  /// Writes bytes from begin on. Thread-safe.
  std::function<void(size_t begin, std::span<std::byte> out)> fill;
};

namespace {

constexpr unsigned kThreads = 256;
/// Bytes that a thread fills at a time.
constexpr size_t kPiece = size_t{1} << 20;

HostRows rows_at(std::span<const std::byte> bytes, DType dtype, size_t unit) {
  return {.dtype = dtype,
          .bytes = bytes.size(),
          .unit = unit,
          .fill = [bytes](size_t begin, std::span<std::byte> out) {
            std::memcpy(out.data(), bytes.data() + begin, out.size());
          }};
}

HostRows rows_decoded(std::span<const DecodedRows> parts, const PackShape& shape) {
  const size_t row = static_cast<size_t>(shape.in_features) * sizeof(float);
  return {.dtype = DType::kF32,
          .bytes = row * static_cast<size_t>(shape.out_features),
          .unit = std::max(row, size_t{1}),
          .fill = [parts, row](size_t begin, std::span<std::byte> out) {
            decode_rows(parts, static_cast<int64_t>(begin / row),
                        static_cast<int64_t>(out.size() / row),
                        reinterpret_cast<float*>(out.data()));
          }};
}

/// As many bytes as whole units fill, at least one.
size_t whole_units(size_t bytes, size_t unit) {
  return std::max(unit, bytes / unit * unit);
}

template <class From, class To>
__global__ void convert_kernel(const From* from, To* to, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = element_of<To>(to_float(from[i]));
}

DType file_dtype_of(ComputeType type) {
  return type == ComputeType::kFloat32    ? DType::kF32
         : type == ComputeType::kBFloat16 ? DType::kBF16
                                          : DType::kF16;
}

size_t bytes_of_number(DType dtype) {
  return static_cast<size_t>(bits_of_dtype(dtype) / 8);
}

void convert(DType dtype, const std::byte* raw, ComputeType type, std::byte* out, int64_t count,
             Stream& stream) {
  with_type(dtype, [&]<class From>(From) {
    with_type(type, [&]<class To>(To) {
      launch("convert",
             {.stream = stream, .blocks = ceil_div(count, kThreads), .threads = kThreads},
             convert_kernel<From, To>, reinterpret_cast<const From*>(raw),
             reinterpret_cast<To*>(out), count);
    });
  });
}

int threads_to_start(int wanted, int most) {
  const int cpus = std::max(1, static_cast<int>(allowed_cpus().size()));
  return std::min({wanted > 0 ? wanted : most, most, cpus});
}

PackShape shape_of(const PackArgs& args) {
  return args.decoded.empty() ? checked_pack_shape(args.parts) : checked_pack_shape(args.decoded);
}

}  // namespace

/// Memory for numbers before they are converted, on a device.
struct GpuPackGroup::Raw {
  Raw(GpuBackend& of, size_t bytes) : device(of) {
    memory.emplace(of.memory_, of.upload_stream(), bytes);
  }
  ~Raw() {
    try {
      device.upload_stream();  // its device takes the memory back
      memory.reset();
    } catch (...) {  // the device failed
    }
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  GpuBackend& device;
  std::optional<ScopedMemory> memory;
};

GpuPackGroup::GpuPackGroup(std::span<Backend* const> devices, int threads)
    : PackGroup(devices),
      pool_(threads_to_start(threads, kMostThreads)),
      staging_(kChunkBytes, kChunks) {}

GpuPackGroup::Targets GpuPackGroup::make_targets(const PackShape& shape, size_t value_bytes,
                                                 size_t scale_bytes) const {
  Targets targets;
  for (Backend* backend : backends()) {
    auto& device = dynamic_cast<GpuBackend&>(*backend);
    Stream& stream = device.upload_stream();
    GpuMatrix& matrix = *targets.emplace_back(std::make_unique<GpuMatrix>(device));
    matrix.out_features = shape.out_features;
    matrix.in_features = shape.in_features;
    matrix.bytes = value_bytes + scale_bytes;
    matrix.values = {&device, device.memory_.take(value_bytes, stream), value_bytes};
    if (scale_bytes > 0)
      matrix.scales = {&device, device.memory_.take(scale_bytes, stream), scale_bytes};
  }
  return targets;
}

std::vector<std::unique_ptr<PackedMatrix>> GpuPackGroup::finish(
    Targets targets, const std::function<void()>& upload_all) {
  std::exception_ptr error;
  const auto keeping_error = [&error](const auto& body) {
    try {
      body();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  keeping_error(upload_all);
  // Also after an error: what devices were asked for still writes into the matrices' memory.
  for (const auto& matrix : targets)
    keeping_error([&] {
      matrix->ready.record(matrix->backend().upload_stream());
      matrix->number = ++matrix->backend().packed_;
    });
  if (error) std::rethrow_exception(error);
  return {std::make_move_iterator(targets.begin()), std::make_move_iterator(targets.end())};
}

std::vector<std::unique_ptr<PackedMatrix>> GpuPackGroup::pack(const PackArgs& args) {
  return args.scales.empty() ? pack_numbers(args) : pack_codes(args);
}

std::vector<std::unique_ptr<PackedMatrix>> GpuPackGroup::pack_numbers(const PackArgs& args) {
  const PackShape shape = shape_of(args);
  const size_t row = static_cast<size_t>(shape.in_features) * bytes_of(args.type);
  Targets targets = make_targets(shape, static_cast<size_t>(shape.out_features) * row, 0);
  std::vector<std::byte*> out;
  for (const auto& matrix : targets) {
    matrix->type = args.type;
    out.push_back(matrix->values.data());
  }
  return finish(std::move(targets), [&] {
    if (!args.decoded.empty()) upload(rows_decoded(args.decoded, shape), args.type, out);
    for (const TensorView& part : args.parts) {
      upload(rows_at(part.bytes, part.dtype, bytes_of_number(part.dtype)), args.type, out);
      for (std::byte*& at : out) at += static_cast<size_t>(part.shape[0]) * row;
    }
  });
}

std::vector<std::unique_ptr<PackedMatrix>> GpuPackGroup::pack_codes(const PackArgs& args) {
  const Fp8PackShape packed = checked_fp8_pack(args.parts, args.scales);
  const std::span<const std::byte> scale_bytes = std::as_bytes(std::span(packed.scales));
  Targets targets = make_targets(
      packed.shape, static_cast<size_t>(packed.shape.out_features * packed.shape.in_features),
      scale_bytes.size());
  std::vector<std::byte*> codes, scales;
  for (const auto& matrix : targets) {
    matrix->is_fp8 = true;
    matrix->scale_per_feature = packed.scale_per_row();
    codes.push_back(matrix->values.data());
    scales.push_back(matrix->scales.data());
  }
  return finish(std::move(targets), [&] {
    for (const TensorView& part : args.parts) {
      upload(rows_at(part.bytes, part.dtype, 1), std::nullopt, codes);
      for (std::byte*& at : codes) at += part.bytes.size();
    }
    upload(rows_at(scale_bytes, DType::kF32, sizeof(float)), std::nullopt, scales);
  });
}

void GpuPackGroup::upload(const HostRows& rows, std::optional<ComputeType> type,
                          std::span<std::byte* const> out) {
  const bool converts = type && rows.dtype != file_dtype_of(*type);
  const size_t step = whole_units(kChunkBytes, rows.unit);
  std::vector<std::unique_ptr<Raw>> raw;
  for (size_t i = 0; converts && rows.bytes > 0 && i < out.size(); ++i)
    raw.push_back(std::make_unique<Raw>(device(i), std::min(step, rows.bytes)));
  for (size_t begin = 0; begin < rows.bytes; begin += step) {
    const size_t size = std::min(step, rows.bytes - begin);
    Staging::Chunk& chunk = staging_.next(size);
    fill(rows, begin, {chunk.data(), size});
    for (size_t i = 0; i < out.size(); ++i) {
      Stream& stream = device(i).upload_stream();
      stream.copy(converts ? raw[i]->memory->data : out[i] + begin, chunk.data(), size);
      chunk.copied_by(stream);
      if (!converts) continue;
      const size_t first = begin / bytes_of_number(rows.dtype);
      convert(rows.dtype, raw[i]->memory->data, *type, out[i] + first * bytes_of(*type),
              static_cast<int64_t>(size / bytes_of_number(rows.dtype)), stream);
    }
  }
}

void GpuPackGroup::fill(const HostRows& rows, size_t begin, std::span<std::byte> chunk) {
  const size_t piece = whole_units(kPiece, rows.unit);
  const size_t pieces = (chunk.size() + piece - 1) / piece;
  pool_.parallel_for(static_cast<int64_t>(pieces), [&](int64_t index, int) {
    const size_t at = static_cast<size_t>(index) * piece;
    rows.fill(begin + at, chunk.subspan(at, std::min(piece, chunk.size() - at)));
  });
}

GpuBackend& GpuPackGroup::device(size_t index) const {
  return static_cast<GpuBackend&>(*backends()[index]);
}

Stream& GpuBackend::upload_stream() {
  use_device(device_);
  return upload_;
}

std::unique_ptr<PackGroup> GpuBackend::make_pack_group(std::span<Backend* const> backends) {
  return std::make_unique<GpuPackGroup>(backends, pack_threads_);
}

std::unique_ptr<PackedMatrix> GpuBackend::pack_alone(const PackArgs& args) {
  Backend* const one = this;
  if (!alone_) alone_ = make_pack_group(std::span(&one, 1));
  return std::move(alone_->pack(args).front());
}

std::unique_ptr<PackedMatrix> GpuBackend::pack(std::span<const TensorView> parts,
                                               ComputeType type) {
  return pack_alone({.parts = parts, .type = type});
}

std::unique_ptr<PackedMatrix> GpuBackend::pack_decoded(std::span<const DecodedRows> parts,
                                                       ComputeType type) {
  return pack_alone({.decoded = parts, .type = type});
}

std::unique_ptr<PackedMatrix> GpuBackend::pack_fp8(std::span<const TensorView> parts,
                                                   std::span<const float> scales) {
  return pack_alone({.parts = parts, .scales = scales});
}

}  // namespace kvcal::gpu
