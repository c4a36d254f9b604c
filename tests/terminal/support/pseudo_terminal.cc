#include "pseudo_terminal.h"

#include <pty.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"

namespace kvcal::test {

void Screen::take(char byte) {
  if (!escape_.empty() || byte == '\x1b') {
    escape_ += byte;
    const bool is_colour = escape_.size() > 2 && byte == 'm';
    if (escape_ == "\x1b[K") rows_.back().resize(std::min(rows_.back().size(), column_));
    if (escape_.size() > 2 && byte >= '@' && !is_colour && escape_ != "\x1b[K")
      fail("the screen does not know ESC ", escape_.substr(1));
    if (escape_.size() > 2 && byte >= '@') escape_.clear();
    return;
  }
  if (byte == '\r') {
    column_ = 0;
  } else if (byte == '\n') {
    rows_.emplace_back();
  } else {
    if (column_ == columns_) {
      rows_.emplace_back();
      column_ = 0;
    }
    std::string& row = rows_.back();
    row.resize(std::max(row.size(), column_ + 1), ' ');
    row[column_++] = byte;
  }
}

std::vector<std::string> Screen::rows() const {
  std::vector<std::string> shown = rows_;
  for (std::string& row : shown) row.resize(row.find_last_not_of(' ') + 1);
  while (!shown.empty() && shown.back().empty()) shown.pop_back();
  return shown;
}

PseudoTerminal::PseudoTerminal(int columns) : screen_(static_cast<size_t>(columns)) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  char name[128];
  if (::openpty(&user_side_, &program_side_, name, nullptr, &size) != 0)
    fail("no pseudo-terminal can be opened");
  stream_.open(name);
  stream_ << std::unitbuf;
}

PseudoTerminal::~PseudoTerminal() {
  ::close(user_side_);
  ::close(program_side_);
}

std::vector<std::string> PseudoTerminal::rows() {
  // The system hands bytes over when it likes; this one is the last of all that were written.
  constexpr char kEnd = '\x04';
  if (::write(program_side_, &kEnd, 1) != 1) fail("the pseudo-terminal takes nothing");
  char byte = 0;
  while (::read(user_side_, &byte, 1) == 1 && byte != kEnd) {
    bytes_ += byte;
    screen_.take(byte);
  }
  return screen_.rows();
}

}  // namespace kvcal::test
