#pragma once

#include <string>

#include "checkpoint/model_dir.h"

namespace kvcal {

/// Tells checkpoints apart without reading them whole: SHA-256 over config.json as it stands, and
/// of every shard, in name order, its size, its header, and the first and the last 512 bytes of
/// each tensor. ModelDir::sha256 is what names a checkpoint for good. Throws Error where a file
/// cannot be read.
std::string sampled_sha256(const ModelDir& model_dir);

}  // namespace kvcal
