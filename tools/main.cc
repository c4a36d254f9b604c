#include <algorithm>
#include <csignal>
#include <iostream>
#include <system_error>

#include "commands.h"
#include "core/error.h"
#include "core/file_in_use.h"
#include "core/interrupt.h"
#include "core/join.h"
#include "core/registry.h"
#include "input_options.h"
#include "run/state_options.h"
#include "terminal/command_line.h"
#include "terminal/progress.h"
#include "terminal/status_line.h"

namespace kvcal {
namespace {

// Every subcommand, in the order --help lists them.
constexpr AddCommand kCommands[] = {add_calibrate, add_quantize,   add_scales,  add_convert,
                                    add_apply,     add_generate,   add_eval,    add_sweep,
                                    add_inspect,   add_verify,     add_engines, add_families,
                                    add_synth,     add_completion, add_man};

int code(ExitStatus status) {
  return static_cast<int>(status);
}

void stop(int) {
  request_interrupt();
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = stop;
  // A scheduler says it more than once: srun does as soon as another rank has ended.
  sigaction(SIGTERM, &action, nullptr);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second Ctrl-C ends the process at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  handle_lost_pages();
  // A full disk or a file size limit is an error from write, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
}

std::string command_names(const CLI::App& app) {
  return join(app.get_subcommands({}), ", ", [](const CLI::App* one) { return one->get_name(); });
}

/// The message for an unknown word, with the names that it may have been meant for.
std::string unknown_word(const CLI::App& app, const std::string& word) {
  const auto commands = app.get_subcommands();  // the one given, if any
  std::vector<std::string> known;
  if (commands.empty()) {
    for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
    const bool is_option = word.starts_with('-');
    return "unknown " + std::string(is_option ? "option '" : "command '") + word + "'" +
           did_you_mean(word, known) + (is_option ? "" : "; commands are " + command_names(app));
  }
  const std::string& name = commands.front()->get_name();
  if (!word.starts_with('-')) return name + ": unexpected argument '" + word + "'";
  for (const CLI::Option* option : commands.front()->get_options())
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  const std::string option = word.substr(0, word.find('='));
  return name + ": unknown option '" + option + "'" + did_you_mean(option, known);
}

/// CLI11 lists all words it could not place, last ones first; the first unknown option explains the
/// words after it.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::find_if(words.begin(), words.end(),
                                   [](const auto& word) { return word.starts_with("-"); });
  if (option != words.end()) return unknown_word(app, *option);
  if (!words.empty()) return unknown_word(app, words.front());
  if (app.get_subcommands().empty()) return "a command is needed: " + command_names(app);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    const std::string_view message = error.what();  // "--output: 1 required TEXT missing"
    return std::string(message.substr(0, message.find(':'))) + " needs a value";
  }
  return error.what();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::cerr << "error: " << usage_message(app, error) << "\nRun with --help for usage.\n";
  return code(ExitStatus::kUsage);
}

/// Name of the command given, if any.
std::string command_name(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "" : commands.front()->get_name();
}

/// A sweep keeps what it has done; all else appears complete or not at all.
const char* interrupted_message(const CLI::App& app) {
  if (command_name(app) == "sweep")
    return "interrupted; what is done is kept, and the same command goes on from there\n";
  return "interrupted; no output was left behind\n";
}

/// The advice depends on the options that the command has.
const char* out_of_memory_message(const CLI::App& app) {
  const std::string name = command_name(app);
  if (name == "calibrate")
    return "error: out of memory; --memory-limit and a smaller --batch-tokens lower what is "
           "needed\n";
  if (name == "eval")
    return "error: out of memory; a smaller --max-seq-length lowers what is needed\n";
  if (name == "generate")
    return "error: out of memory; a smaller --max-new-tokens or a shorter prompt lowers what is "
           "needed\n";
  return "error: out of memory\n";
}

constexpr const char* kLackOfThreads =
    "cannot start a thread: no memory for its stack, or no more processes are allowed: ";

/// In that case the standard library's message has only the system's reason.
bool is_lack_of_threads(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system && system->code() == std::errc::resource_unavailable_try_again;
}

/// --json stands first, so that it is known when --version answers.
void add_version_options(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::Option* option =
      app.add_flag("--json", *json, "With --version: what the program was built of, as JSON");
  CLI::Option* version = app.set_version_flag(
      "--version", [json] { return *json ? version_json() : version_text(); },
      "Print the version and exit");
  option->needs(version);
}

void fetch_named_inputs() {
  TerminalDiagnostics diagnostics;
  fetch_inputs(diagnostics);
}

int run_main(int argc, char** argv) {
  CLI::App app("Calibrated FP8 KV-cache scales for 16-bit Hugging Face checkpoints", "kvcal");
  add_version_options(app);
  app.require_subcommand(1);
  std::function<void()> run;
  for (const AddCommand add : kCommands) add(app, run);
  try {
    app.parse(argc, argv);
    fetch_named_inputs();
    unless_file_changed(run);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  } catch (const RunEnded& ended) {
    return ended.status();
  } catch (const InterruptedRun& interrupted) {
    std::cerr << printable(interrupted.what()) << '\n';
    return code(ExitStatus::kInterrupted);
  } catch (const Interrupted&) {
    std::cerr << interrupted_message(app);
    return code(ExitStatus::kInterrupted);
  } catch (const GateMissed& missed) {
    std::cerr << missed.what() << '\n';
    return code(ExitStatus::kGateMissed);
  } catch (const Error& error) {
    std::cerr << "error: " << printable(error.what()) << '\n';
    return code(ExitStatus::kBadInput);
  } catch (const std::bad_alloc&) {
    std::cerr << out_of_memory_message(app);
    return code(ExitStatus::kBadInput);
  } catch (const std::exception& error) {
    std::cerr << "error: " << (is_lack_of_threads(error) ? kLackOfThreads : "")
              << printable(error.what()) << '\n';
    return code(ExitStatus::kBadInput);
  }
  return code(ExitStatus::kDone);
}

}  // namespace
}  // namespace kvcal

int main(int argc, char** argv) {
  kvcal::handle_signals();
  kvcal::remember_command_line(argc, argv);
  const kvcal::GuardedOutput guarded;
  return kvcal::run_main(argc, argv);
}
