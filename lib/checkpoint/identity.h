#pragma once

#include <string>

#include "checkpoint/model_dir.h"

namespace kvcal {

/// Fingerprint of a checkpoint without a full read: SHA-256 over config.json, and over size,
/// header, and first and last 512 bytes of each tensor of every shard, in name order.
/// ModelDir::sha256 identifies a checkpoint fully. Throws Error where a file cannot be read.
std::string sampled_sha256(const ModelDir& model_dir);

}  // namespace kvcal
