#pragma once

#include <fstream>
#include <string>
#include <vector>

namespace kvcal::test {

/// What a terminal shows of the bytes that it gets: characters in any colour, CR, LF, "erase to the
/// end of the row", and rows that go on in the next one when they are full.
class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}
  void take(char byte);
  /// Without blanks at their ends, and without empty ones at the end.
  std::vector<std::string> rows() const;

 private:
  size_t columns_, column_ = 0;
  std::string escape_;  ///< of a sequence that is not whole yet
  std::vector<std::string> rows_{""};
};

/// A terminal of the system with a Screen at its other side.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(int columns);
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  int descriptor() const { return program_side_; }
  /// A stream to it that keeps nothing back.
  std::ostream& stream() { return stream_; }
  /// The screen, after all that was written.
  std::vector<std::string> rows();
  /// Bytes that came since the start.
  const std::string& bytes() const { return bytes_; }

 private:
  int user_side_ = -1, program_side_ = -1;
  std::ofstream stream_;
  Screen screen_;
  std::string bytes_;
};

}  // namespace kvcal::test
