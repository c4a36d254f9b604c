#pragma once

#include <chrono>
#include <string>

#include "core/diagnostics.h"

namespace kvcal {

/// Warnings and progress on stderr: a bar with rate and time left on a terminal, plain lines
/// otherwise.
class TerminalDiagnostics : public Diagnostics {
 public:
  TerminalDiagnostics();
  ~TerminalDiagnostics() override;
  void warn(const std::string& message) override;
  void inform(const std::string& lines) override;
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override;

 private:
  void clear_line();

  bool is_terminal_ = false, line_open_ = false;
  std::string stage_;
  std::chrono::steady_clock::time_point stage_start_, last_shown_;
  int last_tenth_ = -1;
};

}  // namespace kvcal
