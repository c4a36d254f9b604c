#include "terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvcal {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenUpdates{100};
constexpr int kBarWidth = 24;

/// "1.2 M", "340"
std::string short_number(double value) {
  char text[32];
  if (value >= 1e6) {
    std::snprintf(text, sizeof text, "%.1f M", value / 1e6);
  } else if (value >= 1e3) {
    std::snprintf(text, sizeof text, "%.1f k", value / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.0f ", value);
  }
  return text;
}

std::string short_time(double seconds) {
  char text[32];
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(whole / 60),
                static_cast<long long>(whole % 60));
  return text;
}

}  // namespace

TerminalDiagnostics::TerminalDiagnostics() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

TerminalDiagnostics::~TerminalDiagnostics() {
  clear_line();
}

void TerminalDiagnostics::clear_line() {
  if (line_open_) std::fputs("\r\x1b[K", stderr);
  line_open_ = false;
}

void TerminalDiagnostics::warn(const std::string& message) {
  clear_line();
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

void TerminalDiagnostics::inform(const std::string& lines) {
  clear_line();
  std::fprintf(stderr, "%s\n", lines.c_str());
}

void TerminalDiagnostics::progress(std::string_view stage, int64_t done, int64_t total,
                                   std::string_view unit) {
  const auto now = Clock::now();
  if (stage != stage_) {
    clear_line();
    stage_ = stage;
    stage_start_ = now;
    last_shown_ = {};
    last_tenth_ = -1;
  }
  const double fraction =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0)
                : 0.0;
  const double elapsed = std::chrono::duration<double>(now - stage_start_).count();
  const double rate = elapsed > 0.0 ? static_cast<double>(done) / elapsed : 0.0;
  if (!is_terminal_) {
    const int tenth = static_cast<int>(fraction * 10.0);
    if (tenth <= last_tenth_) return;
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s: %3.0f %%, %s%.*s/s\n", stage_.c_str(), 100.0 * fraction,
                 short_number(rate).c_str(), static_cast<int>(unit.size()), unit.data());
    return;
  }
  if (now - last_shown_ < kBetweenUpdates && done < total) return;
  last_shown_ = now;
  const int filled = static_cast<int>(fraction * kBarWidth);
  const double left = rate > 0.0 ? static_cast<double>(total - done) / rate : 0.0;
  std::fprintf(stderr, "\r%s [%s%s] %3.0f %%  %s%.*s/s  %s left\x1b[K", stage_.c_str(),
               std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kBarWidth - filled), '.').c_str(), 100.0 * fraction,
               short_number(rate).c_str(), static_cast<int>(unit.size()), unit.data(),
               short_time(left).c_str());
  line_open_ = true;
}

}  // namespace kvcal
