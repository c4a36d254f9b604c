#include "terminal/progress.h"

#include <unistd.h>

#include <map>
#include <sstream>

#include "core/text.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"
#include "support/scratch_folder.h"
#include "terminal/session.h"

using namespace kvcal;
using namespace std::chrono_literals;
using kvcal::test::PseudoTerminal;
using Rows = std::vector<std::string>;

namespace {

/// A program on a pseudo-terminal whose clock only the test moves.
struct Program {
  explicit Program(int columns, std::map<std::string, std::string> variables = {})
      : terminal(columns),
        environment(std::move(variables)),
        line({.descriptor = terminal.descriptor(),
              .now = [this] { return now; },
              .environment = [this](const char* name) -> const char* {
                const auto found = environment.find(name);
                return found == environment.end() ? nullptr : found->second.c_str();
              }}),
        guarded(line, terminal.stream(), {.descriptor = terminal.descriptor(), .shows_line = true}),
        diagnostics(line, terminal.stream()) {}

  void progress(const std::string& stage, int64_t done, int64_t total) {
    diagnostics.progress(stage, done, total, "tokens");
  }
  /// Half of 12,000 tokens in 3 seconds.
  void half() {
    progress("calibrating", 0, 12000);
    now += 3s;
    progress("calibrating", 6000, 12000);
  }

  StatusLine::Time now{};
  PseudoTerminal terminal;
  std::map<std::string, std::string> environment;
  StatusLine line;
  StatusLine::Stream guarded;
  TerminalDiagnostics diagnostics;
};

}  // namespace

TEST_CASE("progress: the bar takes what a terminal has") {
  const std::map<int, std::string> expected{
      {30, "calibrating  50 %  3 s left"},
      {80, "calibrating [############............]  50 %  2.0 k tokens/s  3 s left"},
      {200, "calibrating [############............]  50 %  2.0 k tokens/s  3 s left"}};
  for (const auto& [columns, row] : expected) {
    INFO(columns);
    Program program(columns);
    program.half();
    CHECK(program.terminal.rows() == Rows{row});
  }
}

TEST_CASE("progress: no row is wider than the terminal, and a drawing leaves none behind") {
  for (int columns = 30; columns <= 200; ++columns) {
    Program program(columns);
    for (int64_t done = 0; done <= 100; ++done) {
      program.progress("download a-model-with-a-name-of-many-words", done * 10'000, 1'000'000);
      program.now += 150ms;
    }
    INFO(columns);
    const Rows rows = program.terminal.rows();
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].size() < static_cast<size_t>(columns));
    CHECK(rows[0].ends_with(" left"));
  }
}

TEST_CASE("progress: other text gets rows of its own, and the bar comes back below") {
  for (const int columns : {30, 80, 200}) {
    INFO(columns);
    Program program(columns);
    program.half();
    program.terminal.stream() << "layer  k_scale\n";
    CHECK(program.terminal.rows() == Rows{"layer  k_scale"});
    program.now += 1s;
    program.progress("calibrating", 8000, 12000);
    CHECK(program.terminal.rows().size() == 2);
    program.diagnostics.warn("few samples");
    CHECK(program.terminal.rows() == Rows{"layer  k_scale", "warning: few samples"});
    program.now += 1s;
    program.progress("calibrating", 12000, 12000);
    CHECK(program.terminal.rows().back().ends_with("100 %  0 s left") == (columns == 30));
    program.line.clear();
    CHECK(program.terminal.rows() == Rows{"layer  k_scale", "warning: few samples"});
  }
}

TEST_CASE("progress: a row that other text has begun is not written over") {
  Program program(80);
  program.half();
  program.terminal.stream() << "Once upon";
  program.now += 1s;
  program.progress("calibrating", 8000, 12000);
  CHECK(program.terminal.rows() == Rows{"Once upon"});
  program.terminal.stream() << " a time\n";
  program.now += 1s;
  program.progress("calibrating", 9000, 12000);
  const Rows rows = program.terminal.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == "Once upon a time");
  CHECK(rows[1].find(" 75 %") != std::string::npos);
}

TEST_CASE("progress: the end of the work leaves nothing") {
  Program program(80);
  {
    TerminalDiagnostics own(program.line, program.terminal.stream());
    own.progress("scoring", 0, 10, "tokens");
    program.now += 2s;
    own.progress("scoring", 5, 10, "tokens");
    CHECK(program.terminal.rows().size() == 1);
  }
  CHECK(program.terminal.rows().empty());
}

TEST_CASE("progress: work under half a second shows nothing") {
  for (const auto& variables : {std::map<std::string, std::string>{}, {{"TERM", "dumb"}}}) {
    Program program(80, variables);
    for (int64_t done = 0; done <= 4; ++done) {
      program.progress("tokenizing", done, 4);
      program.now += 100ms;
    }
    CHECK(program.terminal.rows().empty());
    CHECK(program.terminal.bytes().empty());
  }
}

TEST_CASE("progress: time left is told as soon as two looks give a rate, and not before") {
  Program program(80);
  program.progress("calibrating", 1000, 5000);  // how long these took is not known
  program.now += 600ms;
  program.progress("calibrating", 1000, 5000);
  CHECK(program.terminal.rows() == Rows{"calibrating [####....................]  20 %"});
  program.now += 400ms;
  program.progress("calibrating", 2000, 5000);
  CHECK(program.terminal.rows() ==
        Rows{"calibrating [#########...............]  40 %  1.0 k tokens/s  3 s left"});
}

TEST_CASE("progress: plain rows, one in ten seconds, where a line is not drawn again") {
  const std::vector<std::map<std::string, std::string>> plain{
      {{"TERM", "dumb"}}, {{"NO_COLOR", "1"}}, {{"CI", "true"}}};
  for (const auto& variables : plain) {
    INFO(variables.begin()->first);
    Program program(80, variables);
    for (int64_t done = 0; done <= 240; ++done) {  // 24 seconds of two stages
      program.progress(done < 80 ? "observing" : "calibrating", done * 100, 24000);
      program.now += 100ms;
    }
    CHECK(program.terminal.rows() == Rows{"observing:   2 %, 1.0 k tokens/s, 24 s left",
                                          "calibrating:  44 %, 1.0 k tokens/s, 14 s left",
                                          "calibrating:  85 %, 1.0 k tokens/s, 4 s left"});
    CHECK(program.terminal.bytes().find('\x1b') == std::string::npos);
  }
}

TEST_CASE("progress: a pipe gets plain rows, sooner for a reader that draws them") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  StatusLine::Time now{};
  StatusLine line({.descriptor = ends[1], .now = [&] { return now; }});
  line.set_between_rows(500ms);
  std::ostringstream messages;
  TerminalDiagnostics diagnostics(line, messages);
  for (int64_t done = 0; done <= 10; ++done) {
    diagnostics.progress("scoring", done, 10, "sequences");
    now += 250ms;
  }
  diagnostics.warn("done");
  CHECK(messages.str() == "warning: done\n");
  ::close(ends[1]);
  std::string text(500, '\0');
  text.resize(static_cast<size_t>(::read(ends[0], text.data(), text.size())));
  ::close(ends[0]);
  CHECK(text ==
        "scoring:  20 %, 4 sequences/s, 2 s left\nscoring:  40 %, 4 sequences/s, 2 s left\n"
        "scoring:  60 %, 4 sequences/s, 1 s left\nscoring:  80 %, 4 sequences/s, 1 s left\n"
        "scoring: 100 %, 4 sequences/s, 0 s left\n");
}

TEST_CASE("status line: COLUMNS counts where the terminal does not tell, 80 where nothing does") {
  CHECK(Program(0, {{"COLUMNS", "42"}}).line.columns() == 41);
  CHECK(Program(0).line.columns() == 79);
  CHECK(Program(30, {{"COLUMNS", "42"}}).line.columns() == 29);
}

TEST_CASE("status line: characters of two columns and of several bytes are cut whole") {
  Program program(12);
  program.line.show("12345678日本");
  CHECK(program.terminal.rows() == Rows{"12345678日"});
}

TEST_CASE("progress: bytes have their prefix without a blank, other units with one") {
  const auto text = [](double rate, const std::string& unit) {
    return row_text({.stage = "s", .unit = unit, .fraction = 0.5, .rate = rate});
  };
  CHECK(text(1234567, "B") == "s:  50 %, 1.2 MB/s");
  CHECK(text(340, "B") == "s:  50 %, 340 B/s");
  CHECK(text(1234, "tokens") == "s:  50 %, 1.2 k tokens/s");
}

TEST_CASE("progress: times are whole seconds, minutes, or hours and minutes") {
  CHECK(time_text(0.4) == "0 s");
  CHECK(time_text(59.6) == "60 s");
  CHECK(time_text(119.0) == "119 s");
  CHECK(time_text(892.0) == "15 min");
  CHECK(time_text(3909.0) == "65 min");
  CHECK(time_text(9000.0) == "2 h 30 min");
  CHECK(time_text(10790.0) == "3 h");
}

TEST_CASE("status line: text is laid out for the terminal, whatever its pieces") {
  Program program(40, {{"NO_COLOR", "1"}});
  program.terminal.stream() << "verdict     with these scales fine: KL 0.0121 (fine up to 0.02)\n"
                            << "  $ vllm serve /a/long/path/to/a/checkpoint --kv-cache-dtype fp8\n";
  CHECK(program.terminal.rows() ==
        Rows{"verdict     with these scales fine: KL", "            0.0121 (fine up to 0.02)",
             "  $ vllm serve /a/long/path/to/a/checkpo", "int --kv-cache-dtype fp8"});
}

TEST_CASE("status line: colours where nothing asks for plain text, or as the user says") {
  const std::string line = "warning: few samples\n";
  Program coloured(80), plain(80, {{"NO_COLOR", "1"}});
  coloured.terminal.stream() << line;
  plain.terminal.stream() << line;
  CHECK(coloured.terminal.rows() == Rows{"warning: few samples"});
  CHECK(plain.terminal.rows() == Rows{"warning: few samples"});
  CHECK(coloured.terminal.bytes().starts_with("\x1b[33mwarning:\x1b[0m few"));
  CHECK(plain.terminal.bytes().starts_with("warning: few"));
  set_colours("never");
  coloured.terminal.stream() << "error: none\n";
  set_colours("always");
  plain.terminal.stream() << "error: all\n";
  set_colours("auto");
  (void)coloured.terminal.rows();
  (void)plain.terminal.rows();
  CHECK(test::contains(coloured.terminal.bytes(), "\nerror: none"));
  CHECK(test::contains(plain.terminal.bytes(), "\x1b[31merror:\x1b[0m all"));
}

TEST_CASE("progress: a stage that is a step of the job says which") {
  set_steps({"tokenizing", "calibrating"});
  Program program(80);
  program.half();
  CHECK(program.terminal.rows() ==
        Rows{"step 2 of 2, calibrating [##########..........]  50 %  2.0 k tokens/s  3 s left"});
  program.progress("observing", 0, 12000);
  program.now += 3s;
  program.progress("observing", 6000, 12000);
  CHECK(program.terminal.rows().back().starts_with("observing ["));
  set_steps({});
}
