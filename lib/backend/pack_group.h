#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace kvcal {

/// The rows of a matrix, one below the other. Borrows them.
struct PackArgs {
  std::span<const TensorView> parts = {};     ///< as Backend::pack takes them
  std::span<const DecodedRows> decoded = {};  ///< in place of parts
  std::span<const float> scales = {};         ///< parts are codes, as Backend::pack_fp8 takes them
  ComputeType type = ComputeType::kFloat32;   ///< of the packed numbers; codes have none
};

/// Backends of one kind that pack the same matrices. Borrows them.
class PackGroup {
 public:
  explicit PackGroup(std::span<Backend* const> backends)
      : backends_(backends.begin(), backends.end()) {}
  virtual ~PackGroup() = default;
  PackGroup(const PackGroup&) = delete;
  PackGroup& operator=(const PackGroup&) = delete;

  std::span<Backend* const> backends() const { return backends_; }
  /// Packs the matrix for every backend, in their order; the sources may go when it returns. Throws
  /// as Backend::pack does: then no backend has the matrix. Not thread-safe, but may run in another
  /// thread where the backends' pack may.
  virtual std::vector<std::unique_ptr<PackedMatrix>> pack(const PackArgs& args);

 private:
  std::vector<Backend*> backends_;
};

}  // namespace kvcal
