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
struct Panel {
  virtual ~Panel() = default;
};

/// Destination of a Gemm: out [height, stride] = start + x·panelᵀ, or out += x·panelᵀ.
struct GemmResult {
  float* out = nullptr;
  int64_t stride = 0;
  const float* start = nullptr;  ///< [width], added to every row; null: zero
  bool accumulate = false;       ///< start is not read
};

/// Multiplications by panels of one shape, for some numbers of rows ("heights"). A row's result is
/// the same bytes at every height that height_for() gives, and wherever the row stands: so it
/// depends neither on the number of rows nor on the number of threads.
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual const PanelShape& shape() const = 0;
  virtual size_t panel_bytes() const = 0;
  /// Rows of a weight that are packed together, all of them or some.
  virtual int64_t pack_step() const = 0;
  /// Lays row-major [count, depth] of the shape's type, output features from `first` on, out in the
  /// panel's storage, which must be aligned to 64. first is a multiple of pack_step(), and count is
  /// pack_step() but at the panel's end.
  virtual void pack(int64_t first, int64_t count, const void* rows, std::byte* storage,
                    int thread) const = 0;
  /// The panel whose storage that is.
  virtual std::unique_ptr<Panel> panel_in(std::byte* storage) const = 0;
  /// The height to use while `rows` rows (at least 1) are left; those behind them are padding.
  virtual int64_t height_for(int64_t rows) const = 0;
  /// Elements in a row of x: depth, and zeros behind it.
  virtual int64_t x_stride() const = 0;
  /// Floats in a row of out: width, and what nobody reads behind it.
  virtual int64_t out_stride() const = 0;
  /// Takes any GemmResult; else only one of stride out_stride that is not added to.
  virtual bool runs_in_place() const = 0;
  /// x: [height, x_stride].
  virtual void run(int64_t height, const void* x, const Panel& panel, const GemmResult& result,
                   int thread) const = 0;
};

/// How a weight is best cut.
struct GemmBlocking {
  int64_t tallest = 0;    ///< no height_for() is larger
  int64_t rows = 0;       ///< of x that one task should multiply, at most
  int64_t max_width = 0;  ///< of a panel
};

/// The shapes met so far: our tiles where the processor has AMX, else oneDNN. Runs on the calling
/// thread alone; `thread` below and in Gemm chooses working memory, so a number may be used by one
/// thread at a time.
class GemmLibrary {
 public:
  explicit GemmLibrary(int num_threads);
  ~GemmLibrary();
  bool supports(ComputeType type) const;
  /// Whether bfloat16 multiplies faster than float32 here.
  bool has_fast_bfloat16() const;
  /// Name of the implementation for bfloat16 (or float32 without it): "amx_bf16" or oneDNN's.
  std::string implementation() const;
  GemmBlocking blocking(ComputeType type, int64_t depth) const;
  /// Made on first use, by one thread at a time; lives as long as the library.
  const Gemm& get(const PanelShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// To be called once in each thread that runs a Gemm: oneDNN must not start threads of its own.
void use_one_thread_here();

}  // namespace kvcal::cpu
