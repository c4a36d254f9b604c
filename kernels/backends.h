#pragma once

#include <memory>

#include "backend/backend.h"
#include "core/registry.h"

namespace kvcal {

using MakeBackend = std::unique_ptr<Backend> (*)(const BackendOptions& options);
/// Name of --device → maker: "cpu", "reference".
extern const Registry<MakeBackend> kBackends;

}  // namespace kvcal
