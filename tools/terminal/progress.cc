#include "terminal/progress.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "core/text.h"
#include "core/utf8.h"
#include "terminal/layout.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

constexpr int kUsualColumns = 80;
constexpr const char* kClear = "\r\x1b[K";

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

bool is_set(const char* value) {
  return value && *value;
}

/// The start of text that takes at most that many columns. Characters beyond ASCII count as two,
/// which none exceeds.
std::string cut(const std::string& text, int columns) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
    columns -= next - end == 1 ? 1 : 2;
    if (columns < 0) break;
    end = next;
  }
  return text.substr(0, end);
}

bool is_dumb(const StatusLine::Surroundings& surroundings) {
  const char* terminal = surroundings.environment("TERM");
  return terminal && std::string_view(terminal) == "dumb";
}

}  // namespace

StatusLine::StatusLine(Surroundings surroundings) : surroundings_(std::move(surroundings)) {
  is_drawn_ = is_terminal(surroundings_.descriptor) && may_colour() &&
              !is_set(surroundings_.environment("CI"));
}

bool StatusLine::may_colour() const {
  return !is_dumb(surroundings_) && !is_set(surroundings_.environment("NO_COLOR"));
}

int StatusLine::columns_at(int descriptor) const {
  winsize size{};
  int columns = 0;
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  const char* told = surroundings_.environment("COLUMNS");
  if (columns == 0 && is_set(told)) columns = std::atoi(told);
  return (columns > 0 ? columns : kUsualColumns) - 1;
}

void StatusLine::write(const std::string& text) const {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = ::write(surroundings_.descriptor, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads it
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

void StatusLine::show(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (!is_drawn_ || open_rows_ > 0) return;
  write("\r" + cut(text, columns()) + "\x1b[K");
  is_shown_ = true;
}

void StatusLine::clear_locked() {
  if (is_shown_) write(kClear);
  is_shown_ = false;
}

void StatusLine::clear() {
  const std::scoped_lock lock(mutex_);
  clear_locked();
}

void StatusLine::add_row(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (open_rows_ > 0 || (last_row_ && now() - *last_row_ < between_rows_)) return;
  last_row_ = now();
  clear_locked();
  write(text + "\n");
}

StatusLine::Stream::Stream(StatusLine& line, std::ostream& stream, Target target)
    : line_(line), stream_(stream), below_(stream.rdbuf(this)), target_(target) {}

StatusLine::Stream::~Stream() {
  held_ += shown_lines(unfinished_);
  {
    const std::scoped_lock lock(line_.mutex_);
    release(/*all=*/true);
  }
  stream_.flush();
  stream_.rdbuf(below_);
}

std::streambuf::int_type StatusLine::Stream::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof()))
    return traits_type::not_eof(character);
  const char one = traits_type::to_char_type(character);
  return xsputn(&one, 1) == 1 ? character : traits_type::eof();
}

bool StatusLine::Stream::is_coloured() const {
  const Colours chosen = chosen_colours();
  return chosen == Colours::kAuto ? target_.descriptor >= 0 && line_.may_colour()
                                  : chosen == Colours::kAlways;
}

bool StatusLine::Stream::put(const std::string& text) {
  if (text.empty()) return true;
  line_.clear_locked();
  if (const bool is_open = target_.shows_line && text.back() != '\n'; is_open != is_open_) {
    is_open_ = is_open;
    line_.open_rows_ += is_open ? 1 : -1;
  }
  return below_->sputn(text.data(), std::ssize(text)) == std::ssize(text);
}

bool StatusLine::Stream::release(bool all) {
  std::string laid_out;
  size_t begin = 0;
  for (size_t end = 0; (end = held_.find('\n', begin)) != held_.npos; begin = end + 1) {
    std::string line = held_.substr(begin, end - begin);
    if (target_.descriptor >= 0)
      line = in_rows(line, static_cast<size_t>(line_.columns_at(target_.descriptor)));
    laid_out += (is_coloured() ? coloured(line) : line) + '\n';
  }
  held_.erase(0, begin);
  if (all) laid_out += std::exchange(held_, {});
  return put(laid_out);
}

int StatusLine::Stream::sync() {
  const std::scoped_lock lock(line_.mutex_);
  const bool is_written = target_.keeps_lines || release(/*all=*/true);
  return is_written ? below_->pubsync() : -1;
}

std::streamsize StatusLine::Stream::xsputn(const char* text, std::streamsize count) {
  if (count <= 0) return 0;
  const std::scoped_lock lock(line_.mutex_);
  if (is_raw()) return put(std::string(text, static_cast<size_t>(count))) ? count : 0;
  unfinished_.append(text, static_cast<size_t>(count));
  const size_t whole = unfinished_.size() - utf8::unfinished_size(unfinished_);
  held_ += shown_lines(std::string_view(unfinished_).substr(0, whole));
  unfinished_.erase(0, whole);
  return release(/*all=*/false) ? count : 0;
}

StatusLine& status_line() {
  static StatusLine line({});
  return line;
}

namespace {

int terminal_at(int descriptor) {
  return is_terminal(descriptor) ? descriptor : -1;
}

}  // namespace

GuardedOutput::Output::Output()
    : Stream(status_line(), std::cout,
             {.descriptor = terminal_at(STDOUT_FILENO),
              .shows_line = is_terminal(STDOUT_FILENO) && is_terminal(STDERR_FILENO)}),
      is_terminal_(is_terminal(STDOUT_FILENO)) {}

GuardedOutput::GuardedOutput()
    : error_(status_line(), std::cerr,
             {.descriptor = terminal_at(STDERR_FILENO),
              .shows_line = is_terminal(STDERR_FILENO),
              .keeps_lines = true}) {}

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

// Set once, before the work.
std::vector<std::string> steps;

/// "step 2 of 3, calibrating"
std::string named_stage(const std::string& stage) {
  const auto step = std::ranges::find(steps, stage);
  if (step == steps.end()) return stage;
  return "step " + std::to_string(step - steps.begin() + 1) + " of " +
         std::to_string(steps.size()) + ", " + stage;
}

}  // namespace

void set_steps(std::vector<std::string> stages) {
  steps = std::move(stages);
}

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
  StageProgress shown{.stage = named_stage(stage_),
                      .unit = std::string(unit),
                      .fraction = std::clamp(part, 0.0, 1.0)};
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
