#pragma once

#include "checkpoint/model_dir.h"
#include "engines/scale_loading.h"

namespace kvcal {

/// Tells how the engine's loader of drafts reads the scales of the checkpoint's draft layer
/// (family/draft_layer.h), where it has one. An error: the loader stops at a name, so that no
/// server with drafts starts. A warning: the draft's cache has the scale 1.0, since the loader
/// drops the scale or there is none; more drafted tokens are rejected, and the answers stay. The
/// model itself loads either way.
void check_draft_scales(const VerifyCase& subject, const ModelDir& model_dir, bool has_fp8_cache,
                        Findings& findings);

}  // namespace kvcal
