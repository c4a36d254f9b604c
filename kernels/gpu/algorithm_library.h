#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/gpu/vendor_matmul.h"

namespace kvcal::gpu {

/// One of a library's ways to compute products of a shape.
struct Algorithm {
  std::array<uint64_t, 8> data{};  ///< the library's own description
  std::string text;                ///< for people: "66, tile 128x256, stages 64xAUTO"
};

/// A vendor's library that offers algorithms for a product and runs the one that it is told.
class AlgorithmLibrary {
 public:
  virtual ~AlgorithmLibrary() = default;
  virtual std::string name() const = 0;  ///< "cuBLASLt 13.0"
  /// Whether it supports the types, scales, strides and addresses of such problems.
  virtual bool fits(const MatmulProblem& problem) const = 0;
  /// Rows of the product that an algorithm is chosen for.
  virtual int64_t rows() const = 0;
  /// Algorithms for the problem's shape with its number of rows, the library's favourite first. It
  /// leaves out those of which it knows that parts of a sum are computed side by side.
  virtual std::vector<Algorithm> algorithms(const MatmulProblem& problem) = 0;
  /// Whether the algorithm may run with the problem's number of rows.
  virtual bool takes_rows(const Algorithm& algorithm, const MatmulProblem& problem) = 0;
  virtual bool runs_side_by_side() const = 0;
  virtual void multiply(Stream& stream, const MatmulProblem& problem,
                        const Algorithm& algorithm) = 0;
};

}  // namespace kvcal::gpu
