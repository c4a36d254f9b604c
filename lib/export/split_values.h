#pragma once

#include "checkpoint/safetensors.h"
#include "export/planned_weights.h"
#include "export/source_values.h"

namespace kvcal {

/// Tensor of one expert that keeps its values: copied by range where it is contiguous, else
/// assembled on demand. Borrows its arguments.
class SplitValues {
 public:
  SplitValues(const SplitCopy& copy, const SafetensorsFile& file)
      : copy_(copy), file_(file), values_(file, *copy.source, &copy.planned->slice) {}
  /// Borrows from this.
  TensorSource source();

 private:
  const SplitCopy& copy_;
  const SafetensorsFile& file_;
  SourceValues values_;
};

}  // namespace kvcal
