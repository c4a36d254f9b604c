#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace kvcal::cpu {

/// A part of a weight: width output features of depth inputs each.
struct PanelShape {
  ComputeType type = ComputeType::kFloat32;
  int64_t depth = 0;
  int64_t width = 0;
  auto operator<=>(const PanelShape&) const = default;
};

/// A packed part of a weight; its storage is the PackedMatrix's.
struct Panel;
struct FreePanel {
  void operator()(Panel* panel) const;
};
using PanelPointer = std::unique_ptr<Panel, FreePanel>;

/// oneDNN's multiplications by panels of one shape, for a few fixed numbers of rows ("heights").
/// A row's result is the same bytes at every height that height_for() gives, and wherever the row
/// stands: each height is compared with one of them when the shape is first met, and is not used
/// where oneDNN sums in another order. So a result depends neither on the number of rows nor on
/// the number of threads.
class Gemm {
 public:
  static constexpr int64_t kTallest = 128;

  ~Gemm();
  const PanelShape& shape() const;
  size_t panel_bytes() const;
  /// Lays row-major [width, depth] of the shape's type out in storage, which must be aligned to 64.
  PanelPointer pack(const void* rows, std::byte* storage, int thread) const;
  /// The height to use while `rows` rows (at least 1) are left; those behind them are padding.
  int64_t height_for(int64_t rows) const;
  /// out [height, width] = x [height, depth] · panelᵀ, both contiguous.
  void run(int64_t height, const void* x, const Panel& panel, float* out, int thread) const;

 private:
  friend class GemmLibrary;
  struct State;
  explicit Gemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The shapes met so far. Runs oneDNN on the calling thread alone; `thread` below and in Gemm
/// chooses working memory, so a number may be used by one thread at a time.
class GemmLibrary {
 public:
  explicit GemmLibrary(int num_threads);
  ~GemmLibrary();
  bool supports(ComputeType type) const;
  /// Whether bfloat16 multiplies faster than float32 here.
  bool has_fast_bfloat16() const;
  /// oneDNN's name of what multiplies bfloat16 (or float32 without it), "brg:avx512_core_amx_bf16".
  std::string implementation() const;
  /// Made on first use, by one thread at a time; lives as long as the library.
  const Gemm& get(const PanelShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// To be called once in each thread that runs a Gemm: oneDNN must not start threads of its own.
void use_one_thread_here();

}  // namespace kvcal::cpu
