#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "core/error.h"

namespace kvcal {

/// Remembers the words that the program was started with, for messages.
void remember_command_line(int argc, char** argv);
/// They, as a shell takes them, with --resume.
std::string resuming_command_line();

/// A run that has ended and said why: the process ends with the status.
class RunEnded : public std::exception {
 public:
  explicit RunEnded(int status) : status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// Messages quote files of strangers: control characters must not reach the terminal.
std::string printable(std::string_view message);

}  // namespace kvcal
