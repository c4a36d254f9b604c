#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvcal {

/// Receives warnings and progress. The caller owns it; lib/ never prints.
class Diagnostics {
 public:
  virtual ~Diagnostics() = default;
  /// A warning: the user should know it, but need not act.
  virtual void warn(const std::string& message) = 0;
  /// Information for the user, shown as it is.
  virtual void inform(const std::string& lines) { static_cast<void>(lines); }
  void note(const std::string& message) { inform("note: " + message); }
  /// stage has done of total units ("tokens"). Called often; the receiver decides what to show.
  virtual void progress(std::string_view stage, int64_t done, int64_t total,
                        std::string_view unit) = 0;
};

/// Ignores everything; for tests and callers without a user.
class SilentDiagnostics : public Diagnostics {
 public:
  void warn(const std::string&) override {}
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {}
};

}  // namespace kvcal
