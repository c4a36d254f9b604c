#pragma once

#include <memory>
#include <string>

#include "core/diagnostics.h"
#include "core/json.h"
#include "run/model_session.h"

namespace kvcal {

/// A model that stays loaded; arguments as those of a command. Throws Error.
std::unique_ptr<ModelSession> open_session(const Json& arguments, Diagnostics& diagnostics);
/// Asks it: info, encode, decode, chat, score or generate. Throws Error.
Json ask_session(ModelSession& session, const std::string& question, Json arguments,
                 Diagnostics& diagnostics);

}  // namespace kvcal
