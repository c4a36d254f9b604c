#pragma once

#include "family/architecture.h"

namespace kvcal {

/// Throws Error for a row that no forward pass reads: a role with a shape and layout that no
/// built-in family gives it, conditions of a layer outside of the layers, names without the numbers
/// that the row repeats over. is_of_layer: of layer_tensors.
void check_row(const TensorRow& row, bool is_of_layer);

/// Checks a family, a built-in one or a file's: names, keys, every row, and that the tables have
/// the tensors of its variations. Throws Error naming field and value.
void check_architecture(const Architecture& family);

}  // namespace kvcal
