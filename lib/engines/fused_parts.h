#pragma once

#include "checkpoint/model_dir.h"
#include "engines/scale_loading.h"
#include "engines/verify.h"

namespace kvcal {

/// Tells of Linears that the engine runs as one, and of which the checkpoint's configuration
/// excepts some parts from quantization and others not: it refuses them (loads is set to false), or
/// takes the parts in 16 bits for codes.
void check_fused_parts(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings,
                       bool& loads);

}  // namespace kvcal
