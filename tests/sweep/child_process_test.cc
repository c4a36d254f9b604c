#include "sweep/child_process.h"

#include <poll.h>
#include <signal.h>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

Command shell(const std::string& script) {
  return {"/bin/sh", {"sh", "-c", script}};
}

/// All lines of a child until the end of its stderr.
std::vector<std::string> all_lines(ChildProcess& child) {
  std::vector<std::string> all;
  while (child.descriptor() >= 0) {
    pollfd wanted{child.descriptor(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    for (std::string& line : child.read_lines()) all.push_back(std::move(line));
  }
  return all;
}

}  // namespace

TEST_CASE("child process: stderr arrives line by line, the last one without its end too") {
  ChildProcess child(shell("echo lost; echo one >&2; printf 'two\\n\\nthr' >&2; printf ee >&2"));
  CHECK(all_lines(child) == std::vector<std::string>{"one", "two", "", "three"});
  CHECK(child.wait().empty());
}

TEST_CASE("child process: how it ends is told by code or signal") {
  ChildProcess failed(shell("exit 3"));
  CHECK(failed.wait() == "exit code 3");
  ChildProcess killed(shell("kill -9 $$"));
  CHECK(killed.wait() == "killed by signal 9");
}

TEST_CASE("child process: interrupt asks it to end") {
  ChildProcess child(
      shell("trap 'echo asked >&2; exit 7' TERM; echo ready >&2; while :; do :; done"));
  std::vector<std::string> lines;
  while (lines.empty()) {
    pollfd wanted{child.descriptor(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    lines = child.read_lines();
  }
  child.interrupt();
  CHECK(all_lines(child) == std::vector<std::string>{"asked"});
  CHECK(child.wait() == "exit code 7");
}

TEST_CASE("child process: one that still runs is killed with its object") {
  std::string line;
  {
    ChildProcess child(shell("echo $$ >&2; while :; do :; done"));
    while (line.empty()) {
      pollfd wanted{child.descriptor(), POLLIN, 0};
      ::poll(&wanted, 1, -1);
      for (const std::string& one : child.read_lines()) line = one;
    }
    CHECK(::kill(std::stoi(line), 0) == 0);
  }
  CHECK(::kill(std::stoi(line), 0) != 0);
}

TEST_CASE("child process: a program that does not exist is an error that names it") {
  CHECK(test::message_of([] {
          ChildProcess({"/no/such/program", {"program"}});
        }) == "cannot start program: No such file or directory");
}
