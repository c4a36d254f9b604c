#pragma once

#include <sstream>

#include "core/error.h"

namespace kvcal {

/// An Error of the request alone: its options contradict each other, or lack one that they need,
/// whatever the inputs hold. A command ends with it as with a command line that is wrong.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Throws UsageError with the concatenated parts.
template <class... Parts>
[[noreturn]] void fail_usage(const Parts&... parts) {
  std::ostringstream text;
  (internal::put_part(text, parts), ...);
  throw UsageError(text.str());
}

}  // namespace kvcal
