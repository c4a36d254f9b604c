#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace kvcal {

/// The array that the bytes of one .npy file hold, format versions 1.0 to 3.0. The view borrows
/// name and bytes; its elements may lie at any address, aligned for their dtype or not. Read are
/// the dtypes '<f2', '<f4' and '<f8' (F16, F32, F64) in C order, and in Fortran order where that is
/// no other order. Throws Error saying what was found and expected: another magic, version or
/// dtype, a header that is cut short, over 10000 bytes or not the dictionary that numpy writes, or
/// data that are not shape × dtype bytes. Source: numpy `lib.format`, 10000 is its
/// `_MAX_HEADER_SIZE`.
TensorView parse_npy(std::string_view name, std::span<const std::byte> bytes);

}  // namespace kvcal
