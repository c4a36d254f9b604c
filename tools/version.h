#pragma once

#include <string>

namespace kvcal {

/// "0.1.0"
std::string program_version();
/// "kvcal 0.1.0", what --version prints.
std::string version_text();
/// What this program was built of, with what and for what, as JSON: `--version --json`. Nothing in
/// it depends on the machine it runs on.
std::string version_json();

}  // namespace kvcal
