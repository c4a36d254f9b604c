#pragma once

#include "model/architecture.h"

namespace kvcal {

Architecture llama_architecture();
Architecture mistral_architecture();

}  // namespace kvcal
