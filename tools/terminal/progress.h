// One status line. What the program prints goes through the process's StatusLine, which clears
// the line of the progress first: std::cout and std::cerr are guarded while main runs. Its clock
// and environment are passed in, and tests/terminal runs it on pseudo-terminals against a model
// of the screen. Nothing of lib/ prints.
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "core/diagnostics.h"

namespace kvcal {

/// The one line at the foot of a terminal that is drawn again and again. Everything else that the
/// program prints goes through a StatusLine::Stream, which clears the line first; so the line never
/// shares a row with other text.
class StatusLine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// What it depends on; tests have their own.
  struct Surroundings {
    int descriptor = 2;  ///< stderr
    std::function<Time()> now = [] { return std::chrono::steady_clock::now(); };
    std::function<const char*(const char*)> environment = [](const char* name) {
      return static_cast<const char*>(std::getenv(name));
    };
  };
  class Stream;

  explicit StatusLine(Surroundings surroundings);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether a line can be drawn again: the descriptor is a terminal, TERM is not dumb, and neither
  /// NO_COLOR nor CI asks for plain text.
  bool is_drawn() const { return is_drawn_; }
  Time now() const { return surroundings_.now(); }
  /// Columns that a line may have: one less than the terminal's, whose cursor then stays in the
  /// row. COLUMNS counts where the terminal does not tell, else 80.
  int columns() const { return columns_at(surroundings_.descriptor); }
  /// The same of another terminal.
  int columns_at(int descriptor) const;
  /// Whether NO_COLOR and TERM=dumb leave colours.
  bool may_colour() const;
  /// Draws text, cut at columns(), in place of what is shown. Nothing where no line is drawn, or
  /// while other text ends within a row.
  void show(const std::string& text);
  void clear();
  /// Writes text as a row that stays, unless another was written in the last ten seconds.
  void add_row(const std::string& text);
  /// For a process that reads the rows, and wants them sooner.
  void set_between_rows(std::chrono::milliseconds between) { between_rows_ = between; }

 private:
  void write(const std::string& text) const;
  void clear_locked();

  Surroundings surroundings_;
  bool is_drawn_ = false, is_shown_ = false;
  int open_rows_ = 0;  ///< streams whose text ends within a row
  std::chrono::milliseconds between_rows_{10000};
  std::optional<Time> last_row_;
  std::mutex mutex_;
};

/// While it lives, what is written to `stream` clears the line first, and is escaped as shown_lines
/// does it: names and texts of files cannot reach a terminal's control. On a terminal, lines are
/// laid out for it (terminal/layout.h).
class StatusLine::Stream : public std::streambuf {
 public:
  /// Where the text goes.
  struct Target {
    int descriptor = -1;       ///< of the terminal; -1: none
    bool shows_line = false;   ///< it is the one that shows the status line
    bool keeps_lines = false;  ///< lines are written whole: nobody waits for a part of one
  };
  Stream(StatusLine& line, std::ostream& stream, Target target);
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override;
  /// Whether text goes on as it is.
  virtual bool is_raw() const { return false; }

 private:
  bool is_coloured() const;
  /// Writes what is held, as far as it is lines, or all.
  bool release(bool all);
  bool put(const std::string& text);

  StatusLine& line_;
  std::ostream& stream_;
  std::streambuf* below_;
  Target target_;
  std::string unfinished_;  ///< start of a character whose other bytes are to come
  std::string held_;        ///< start of a line, escaped
  bool is_open_ = false;
};

/// The process's, on stderr.
StatusLine& status_line();

/// While it lives, std::cout and std::cerr go through the process's line.
class GuardedOutput {
 public:
  GuardedOutput();

  /// From now on std::cout gets the text of a model, whose characters are all its own: a file or
  /// another program gets them as they are, a terminal as before.
  static void pass_text_on() { passes_text_on = true; }

 private:
  class Output : public StatusLine::Stream {
   public:
    Output();
    bool is_raw() const override { return passes_text_on && !is_terminal_; }

   private:
    bool is_terminal_ = false;
  };

  static inline bool passes_text_on = false;
  Output out_;
  StatusLine::Stream error_;
};

/// How far a stage of the work is.
struct StageProgress {
  std::string stage, unit;
  double fraction = 0.0;                    ///< done, 0 to 1
  std::optional<double> rate = {};          ///< units a second, where two looks tell it
  std::optional<double> seconds_left = {};  ///< known with the rate
};

/// The stages of a job in their order, each a part of it: progress then says "step 2 of 3,
/// calibrating". Other stages stand alone.
void set_steps(std::vector<std::string> stages);

/// "calibrating:  42 %, 1.2 k tokens/s, 30 s left"
std::string row_text(const StageProgress& progress);
/// "calibrating [####......]  42 %  1.2 k tokens/s  30 s left" in at most that many columns: the
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
