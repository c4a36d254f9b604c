#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <map>

#include <omp.h>

#include "kernels/cpu/cpu_class.h"
#include "kernels/cpu/onednn_gemm.h"

namespace kvcal::cpu {

namespace {

/// Sizes with which a oneDNN panel takes at most half of a common level 2 cache, and its rows of x
/// fit there too.
constexpr int64_t kDnnPanelBytes = int64_t{512} << 10, kDnnRowsBytes = int64_t{1} << 20;
constexpr int64_t kMinWidth = 64, kMaxWidth = 512;

bool uses_tiles(ComputeType type) {
  return type == ComputeType::kBFloat16 && tile_instructions() == TileInstructions::kAmxBf16;
}

}  // namespace

struct GemmLibrary::State {
  explicit State(int num_threads) : session(num_threads) {
    use_one_thread_here();
    static_cast<void>(cpu_class());  // limits Highway before its first call
    dnn_name = dnn_implementation(session, ComputeType::kBFloat16);
  }
  /// Without instructions for bfloat16, oneDNN converts, and its name has none ("gemm:jit").
  bool uses_dnn(ComputeType type) const {
    return type == ComputeType::kBFloat16 && cpu_class() == CpuClass::kAvx512Bf16 &&
           dnn_name.find("bf16") != std::string::npos;
  }
  DnnSession session;
  std::string dnn_name;
  std::map<PanelShape, std::unique_ptr<Gemm>> gemms;
};

GemmLibrary::GemmLibrary(int num_threads) : state_(std::make_unique<State>(num_threads)) {}
GemmLibrary::~GemmLibrary() = default;

bool GemmLibrary::supports(ComputeType type) const {
  return type != ComputeType::kFloat16;
}

bool GemmLibrary::has_fast_bfloat16() const {
  return uses_tiles(ComputeType::kBFloat16) || state_->uses_dnn(ComputeType::kBFloat16);
}

std::string GemmLibrary::implementation() const {
  if (uses_tiles(ComputeType::kBFloat16)) return std::string(name_of(tile_instructions()));
  return has_fast_bfloat16() ? state_->dnn_name : std::string(name_of(ComputeType::kFloat32));
}

GemmBlocking GemmLibrary::blocking(ComputeType type, int64_t depth) const {
  if (uses_tiles(type))
    return {.tallest = kTileGemmTallest, .rows = kTileGemmTallest, .max_width = kTileGemmMaxWidth};
  if (!state_->uses_dnn(type)) return float_gemm_blocking(type, depth);
  const int64_t row_bytes = std::max<int64_t>(1, depth * static_cast<int64_t>(bytes_of(type)));
  const int64_t blocks = std::clamp<int64_t>(kDnnRowsBytes / row_bytes / kDnnTallest, 1, 8);
  const int64_t width = kDnnPanelBytes / row_bytes / kMinWidth * kMinWidth;
  return {.tallest = kDnnTallest,
          .rows = blocks * kDnnTallest,
          .max_width = std::clamp(width, kMinWidth, kMaxWidth)};
}

const Gemm& GemmLibrary::get(const PanelShape& shape) {
  std::unique_ptr<Gemm>& gemm = state_->gemms[shape];
  if (!gemm)
    gemm = uses_tiles(shape.type)         ? make_tile_gemm(shape)
           : state_->uses_dnn(shape.type) ? make_dnn_gemm(state_->session, shape)
                                          : make_float_gemm(shape);
  return *gemm;
}

void use_one_thread_here() {
  omp_set_num_threads(1);
}

}  // namespace kvcal::cpu
