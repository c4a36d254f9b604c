#include <csignal>
#include <cstdio>

#include "commands.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/registry.h"
#include "kvcal_version.h"

namespace kvcal {
namespace {

// Every subcommand, in the order --help lists them.
constexpr AddCommand kCommands[] = {add_calibrate, add_generate, add_inspect};

int code(ExitStatus status) {
  return static_cast<int>(status);
}

void stop(int) {
  request_interrupt();
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = stop;
  action.sa_flags = SA_RESETHAND;  // a second Ctrl-C ends the process at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A full disk or a file size limit is an error from write, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
}

/// CLI11 names the word it did not expect; this adds the option or command it may have been meant
/// for.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) {
    known.push_back(command->get_name());
    if (!command->parsed()) continue;
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& word : words)
    for (const CLI::App* command : app.get_subcommands({}))
      if (word == command->get_name()) return "";
  for (const std::string& word : words)
    if (const std::string hint = did_you_mean(word, known); !hint.empty()) return word + hint;
  return "";
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::fprintf(stderr, "error: %s\n", error.what());
  if (const std::string hint = suggestion(app, app.remaining(true)); !hint.empty())
    std::fprintf(stderr, "%s\n", hint.c_str());
  std::fputs("Run with --help for usage.\n", stderr);
  return code(ExitStatus::kUsage);
}

int run_main(int argc, char** argv) {
  CLI::App app("Calibrated FP8 KV-cache scales for 16-bit Hugging Face checkpoints", "kvcal");
  app.set_version_flag("--version", "kvcal " KVCAL_VERSION);
  app.require_subcommand(1);
  std::function<void()> run;
  for (const AddCommand add : kCommands) add(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  try {
    run();
  } catch (const Interrupted&) {
    std::fputs("interrupted; no output was left behind\n", stderr);
    return code(ExitStatus::kInterrupted);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return code(ExitStatus::kBadInput);
  } catch (const std::bad_alloc&) {
    std::fputs(
        "error: out of memory; --memory-limit and a smaller --batch-tokens lower what is needed\n",
        stderr);
    return code(ExitStatus::kBadInput);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return code(ExitStatus::kBadInput);
  }
  return code(ExitStatus::kDone);
}

}  // namespace
}  // namespace kvcal

int main(int argc, char** argv) {
  kvcal::handle_signals();
  return kvcal::run_main(argc, argv);
}
