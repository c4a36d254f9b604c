#pragma once

#include <cstdint>

#include "core/error.h"

namespace kvcal {

/// Hashes of the weights that a forward pass reads, which its record keeps: a run that goes on must
/// read the same. Never 0.
class WeightHashes {
 public:
  virtual ~WeightHashes() = default;
  /// Of what the pass reads outside of the layers.
  virtual uint64_t of_model() = 0;
  /// Of a layer that the pass has run, as it was packed.
  virtual uint64_t packed(int64_t layer) = 0;
  /// Of a layer as the files hold it now.
  virtual uint64_t stored(int64_t layer) = 0;
};

/// An Error of weights that are not those of the run that a state is of.
class ChangedWeights : public Error {
 public:
  using Error::Error;
};

}  // namespace kvcal
