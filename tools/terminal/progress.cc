#include "terminal/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "core/shown_text.h"
#include "core/time_text.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{100}, kShortWork{500};
constexpr int kWidestBar = 24, kNarrowestBar = 8;

/// "1.2 k tokens/s", "340 tokens/s", "1.2 MB/s"
std::string rate_text(const StageProgress& progress) {
  if (!progress.rate) return "";
  const bool is_mega = *progress.rate >= 1e6, is_kilo = !is_mega && *progress.rate >= 1e3;
  char number[32];
  std::snprintf(number, sizeof number, is_mega || is_kilo ? "%.1f" : "%.0f",
                *progress.rate / (is_mega   ? 1e6
                                  : is_kilo ? 1e3
                                            : 1.0));
  const std::string prefix = is_mega ? " M" : is_kilo ? " k" : "";
  const bool joins = progress.unit == "B" && !prefix.empty();
  return number + prefix + (joins ? "" : " ") + progress.unit + "/s";
}

std::string percent_text(double fraction) {
  char text[16];
  std::snprintf(text, sizeof text, "%3.0f %%", 100.0 * fraction);
  return text;
}

/// Rounded up: 0:00 is the end.
std::string left_text(const StageProgress& progress) {
  return progress.seconds_left ? time_text(std::ceil(*progress.seconds_left)) + " left" : "";
}

std::string bar(double fraction, int width) {
  const auto filled = static_cast<size_t>(fraction * width);
  return " [" + std::string(filled, '#') + std::string(static_cast<size_t>(width) - filled, '.') +
         "]";
}

}  // namespace

std::string row_text(const StageProgress& progress) {
  std::string text = progress.stage + ": " + percent_text(progress.fraction);
  for (const std::string& part : {rate_text(progress), left_text(progress)})
    if (!part.empty()) text += ", " + part;
  return text;
}

std::string bar_text(const StageProgress& progress, int columns) {
  const auto spaced = [](const std::string& part) { return part.empty() ? part : "  " + part; };
  const std::string percent = " " + percent_text(progress.fraction);
  const std::string rate = spaced(rate_text(progress)), left = spaced(left_text(progress));
  const auto room = [&](const std::string& numbers) {
    return columns - static_cast<int>(progress.stage.size() + numbers.size());
  };
  const std::string all = percent + rate + left, fewer = percent + left;
  const int bar_room = room(all) - 3;  // the space and the brackets
  if (bar_room >= kNarrowestBar)
    return progress.stage + bar(progress.fraction, std::min(bar_room, kWidestBar)) + all;
  if (room(all) >= 0) return progress.stage + all;
  const auto stage_room =
      static_cast<size_t>(std::max(0, columns - static_cast<int>(fewer.size())));
  return progress.stage.substr(0, stage_room) + fewer;
}

TerminalDiagnostics::TerminalDiagnostics() : TerminalDiagnostics(status_line(), std::cerr) {}

void TerminalDiagnostics::warn(const std::string& message) {
  print("warning: " + shown_message(message));
}

void TerminalDiagnostics::inform(const std::string& lines) {
  if (!is_quiet()) print(lines);
}

void TerminalDiagnostics::print(const std::string& lines) {
  line_.clear();
  messages_ << lines << '\n' << std::flush;
}

void TerminalDiagnostics::progress(std::string_view stage, int64_t done, int64_t total,
                                   std::string_view unit) {
  if (is_quiet()) return;
  const StatusLine::Time now = line_.now();
  if (stage != stage_) {
    line_.clear();
    stage_ = stage;
    stage_start_ = now;
    done_at_start_ = done;
    last_drawn_.reset();
  }
  if (now - stage_start_ < kShortWork) return;
  const double elapsed = std::chrono::duration<double>(now - stage_start_).count();
  const double part = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1));
  StageProgress shown{
      .stage = stage_, .unit = std::string(unit), .fraction = std::clamp(part, 0.0, 1.0)};
  if (done > done_at_start_) {
    shown.rate = static_cast<double>(done - done_at_start_) / elapsed;
    shown.seconds_left = static_cast<double>(std::max<int64_t>(total - done, 0)) / *shown.rate;
  }
  if (!line_.is_drawn()) {
    if (shown.rate) line_.add_row(row_text(shown));
    return;
  }
  if (last_drawn_ && now - *last_drawn_ < kBetweenDrawings && done < total) return;
  last_drawn_ = now;
  line_.show(bar_text(shown, line_.columns()));
}

}  // namespace kvcal
