#pragma once

#include <optional>
#include <string>

#include "quant/quant_args.h"

namespace kvcal {

/// A preset of compressed-tensors that needs no data: scales of its inputs, if any, are dynamic.
struct WeightScheme {
  std::string name;  ///< in capitals
  QuantArgs weights;
  std::optional<QuantArgs> inputs;  ///< nullopt: inputs stay 16-bit
};

/// The preset with this name, in any case. Throws Error, with the names that are known, for one
/// that is unknown or needs data.
WeightScheme weight_scheme(const std::string& name);

}  // namespace kvcal
