#pragma once

#include <memory>
#include <optional>

#include "kernels/gpu/algorithm_library.h"

namespace kvcal::gpu {

/// Products of random numbers, to see what an algorithm does with the rows of a shape. Neither the
/// model's weights nor its activations matter, so what is found holds for every model.
class ProductProbe {
 public:
  /// nullptr where it would take more than an eighth of the free memory, of which the next layer
  /// needs some meanwhile, or than 4 GiB. The shorter product has library.rows() rows.
  static std::unique_ptr<ProductProbe> make(AlgorithmLibrary& library, Stream& stream,
                                            const MatmulProblem& shape);
  ~ProductProbe();
  ProductProbe(const ProductProbe&) = delete;
  ProductProbe& operator=(const ProductProbe&) = delete;

  /// Runs the shorter product and waits for it. False where the library refuses.
  bool run(const Algorithm& algorithm);
  /// The same, and a digest of the bytes of its sums: of the same rows for all algorithms.
  std::optional<uint64_t> sums(const Algorithm& algorithm);
  /// The digest of the same rows in a product of twice the rows, where they have another place too;
  /// of as many rows, at other places, where the library runs no other number.
  std::optional<uint64_t> sums_elsewhere(const Algorithm& algorithm);

 private:
  ProductProbe(AlgorithmLibrary& library, Stream& stream, const MatmulProblem& shape,
               std::byte* memory);
  bool multiply(const Algorithm& algorithm, int64_t first, int64_t rows);
  uint64_t digest(int64_t first);

  AlgorithmLibrary& library_;
  Stream& stream_;
  MatmulProblem shape_;
  std::byte* memory_;
  std::byte *x_, *weight_, *out_, *digest_;
  int64_t shared_rows_;
};

}  // namespace kvcal::gpu
