#pragma once

#include "warp.h"

namespace kvcal::ptx {

/// Order in which a block's warps, and blocks, take their turns: $KVCAL_PTX_ORDER, forward by
/// default or reverse. Results must not depend on it.
bool runs_in_reverse();

/// Runs all warps of a block to their ends: each until a barrier, one after the other. files has
/// file_bytes for each warp, with constants and special registers other than those of the block.
void run_block(Block& block, std::byte* files);

/// Writes the constants of a kernel into a warp's file.
void write_constants(const Kernel& kernel, std::byte* file);

}  // namespace kvcal::ptx
