#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "core/diagnostics.h"
#include "terminal/status_line.h"

namespace kvcal {

/// How far a stage of the work is.
struct StageProgress {
  std::string stage, unit;
  double fraction = 0.0;                    ///< done, 0 to 1
  std::optional<double> rate = {};          ///< units a second, where two looks tell it
  std::optional<double> seconds_left = {};  ///< known with the rate
};

/// "calibrating:  42 %, 1.2 k tokens/s, 0:30 left"
std::string row_text(const StageProgress& progress);
/// "calibrating [####......]  42 %  1.2 k tokens/s  0:30 left" in at most that many columns: the
/// bar gives way first, then the rate, then the stage's name.
std::string bar_text(const StageProgress& progress, int columns);

/// Warnings, and progress of what takes half a second or more: a bar with rate and time left in the
/// status line where one is drawn, else rows. With --quiet warnings alone.
class TerminalDiagnostics : public Diagnostics {
 public:
  /// On the process's status line and stderr.
  TerminalDiagnostics();
  /// Borrows both.
  TerminalDiagnostics(StatusLine& line, std::ostream& messages)
      : line_(line), messages_(messages) {}
  ~TerminalDiagnostics() override { line_.clear(); }
  void warn(const std::string& message) override;
  void inform(const std::string& lines) override;
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override;

 private:
  void print(const std::string& lines);

  StatusLine& line_;
  std::ostream& messages_;
  std::string stage_;
  StatusLine::Time stage_start_;
  int64_t done_at_start_ = 0;
  std::optional<StatusLine::Time> last_drawn_;
};

}  // namespace kvcal
