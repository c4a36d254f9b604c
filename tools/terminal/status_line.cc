#include "terminal/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <string_view>
#include <utility>

#include "core/shown_text.h"
#include "core/utf8.h"

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

}  // namespace

StatusLine::StatusLine(Surroundings surroundings) : surroundings_(std::move(surroundings)) {
  const auto& environment = surroundings_.environment;
  const char* terminal = environment("TERM");
  const bool is_dumb = terminal && std::string_view(terminal) == "dumb";
  is_drawn_ = is_terminal(surroundings_.descriptor) && !is_dumb &&
              !is_set(environment("NO_COLOR")) && !is_set(environment("CI"));
}

int StatusLine::columns() const {
  winsize size{};
  int columns = 0;
  if (::ioctl(surroundings_.descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
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

StatusLine::Stream::Stream(StatusLine& line, std::ostream& stream, bool is_terminal)
    : line_(line), stream_(stream), below_(stream.rdbuf(this)), is_terminal_(is_terminal) {}

StatusLine::Stream::~Stream() {
  if (!unfinished_.empty()) {
    const std::string last = shown_lines(unfinished_);
    below_->sputn(last.data(), std::ssize(last));
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

std::streamsize StatusLine::Stream::xsputn(const char* text, std::streamsize count) {
  if (count <= 0) return 0;
  const std::scoped_lock lock(line_.mutex_);
  line_.clear_locked();
  if (const bool is_open = is_terminal_ && text[count - 1] != '\n'; is_open != is_open_) {
    is_open_ = is_open;
    line_.open_rows_ += is_open ? 1 : -1;
  }
  if (is_raw()) return below_->sputn(text, count);
  unfinished_.append(text, static_cast<size_t>(count));
  const size_t whole = unfinished_.size() - utf8::unfinished_size(unfinished_);
  const std::string shown = shown_lines(std::string_view(unfinished_).substr(0, whole));
  unfinished_.erase(0, whole);
  return below_->sputn(shown.data(), std::ssize(shown)) == std::ssize(shown) ? count : 0;
}

StatusLine& status_line() {
  static StatusLine line({});
  return line;
}

GuardedOutput::Output::Output()
    : Stream(status_line(), std::cout, is_terminal(STDOUT_FILENO) && is_terminal(STDERR_FILENO)),
      is_terminal_(is_terminal(STDOUT_FILENO)) {}

GuardedOutput::GuardedOutput() : error_(status_line(), std::cerr, is_terminal(STDERR_FILENO)) {}

}  // namespace kvcal
