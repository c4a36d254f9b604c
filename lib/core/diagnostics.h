#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvcal {

/// Receives warnings and progress. The caller owns it; lib/ never prints.
class Diagnostics {
 public:
  virtual ~Diagnostics() = default;
  /// Something the user should know and need not act on.
  virtual void warn(const std::string& message) = 0;
  /// Something the user may want to know: lines that are shown as they are.
  virtual void inform(const std::string& lines) { static_cast<void>(lines); }
  void note(const std::string& message) { inform("note: " + message); }
  /// stage is at done of total units ("tokens"); called often, the sink decides what to show.
  virtual void progress(std::string_view stage, int64_t done, int64_t total,
                        std::string_view unit) = 0;
};

/// Swallows everything; for tests and callers that do not care.
class SilentDiagnostics : public Diagnostics {
 public:
  void warn(const std::string&) override {}
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {}
};

}  // namespace kvcal
