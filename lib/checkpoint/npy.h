#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace kvcal {

/// Parses the bytes of one .npy file, format versions 1.0 to 3.0. The view borrows name and bytes;
/// its elements may be unaligned. Supports the dtypes '<f2', '<f4' and '<f8' (F16, F32, F64) in C
/// order, and in Fortran order where both are equal. Throws Error with the value found and
/// expected: another magic, version or dtype, a header that is truncated, over 10000 bytes or not
/// the dictionary that numpy writes, or data that are not shape × dtype bytes. Source: numpy
/// `lib.format`; 10000 is its `_MAX_HEADER_SIZE`.
TensorView parse_npy(std::string_view name, std::span<const std::byte> bytes);

}  // namespace kvcal
