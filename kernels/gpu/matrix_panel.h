#pragma once

#include <cstdint>

#include "quant/host_device.h"

// Matrices in shared memory as wgmma reads them, as plain values, so that they are tested without a
// device.
namespace kvcal::gpu {

/// A panel has rows of 64 16-bit elements, 128 bytes, and begins at a multiple of 1024 bytes. Its
/// 16-byte chunks are swizzled, so that a column uses all banks.
constexpr int kPanelColumns = 64;

/// Element of a panel at which chunk c of a row begins.
KVCAL_HD constexpr int panel_at(int row, int chunk) {
  return row * kPanelColumns + (chunk ^ (row & 7)) * 8;
}

/// Descriptor of a matrix in a panel: of rows as columns of the product's depth, or transposed, of
/// rows as its depth. The address moves by whole groups of 8 rows, or by 16 columns in a row.
/// Source: PTX ISA, wgmma, "Matrix descriptor format" and "Strides"; CUTLASS make_gmma_desc.
KVCAL_HD constexpr uint64_t panel_descriptor(uint32_t address) {
  constexpr uint64_t kLeading = 1;  // panels are as wide as the swizzle, so it is not used
  constexpr uint64_t kStride = 8 * kPanelColumns * 2 / 16;  // from 8 rows to the next, in 16 bytes
  constexpr uint64_t kSwizzled128Bytes = 1;
  return (address & 0x3ffffu) >> 4 | kLeading << 16 | kStride << 32 | kSwizzled128Bytes << 62;
}

}  // namespace kvcal::gpu
