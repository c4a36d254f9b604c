#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <system_error>

#include "command_description.h"
#include "commands.h"
#include "core/confinement.h"
#include "core/error.h"
#include "core/file_in_use.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/join.h"
#include "core/own_stack.h"
#include "core/registry.h"
#include "core/shown_text.h"
#include "hub/hub_settings.h"
#include "input_options.h"
#include "ranks/launcher.h"
#include "run/output_files.h"
#include "run/state_options.h"
#include "shell/help_page.h"
#include "terminal/progress.h"
#include "terminal/session.h"
#include "terminal/status_line.h"

namespace kvcal {
namespace {

// Every subcommand, in the order --help lists them.
constexpr AddCommand kCommands[] = {
    add_calibrate, add_try,        add_quantize, add_scales,  add_smooth, add_convert, add_apply,
    add_generate,  add_eval,       add_sweep,    add_inspect, add_verify, add_engines, add_families,
    add_synth,     add_completion, add_man,      add_help,    add_version};

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
  // A full disk, a file size limit and a reader that is gone are errors from write, not signals:
  // those would leave unfinished folders and locks.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

/// Name of the command given, if any.
std::string command_name(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "" : commands.front()->get_name();
}

/// The message for an unknown word, with the names that it may have been meant for.
std::string unknown_word(const CLI::App& app, const std::string& word) {
  const ProgramDescription program = description_of(app);
  const std::string name = command_name(app);
  const bool is_option = word.starts_with('-');
  if (name.empty() && !is_option) {
    std::vector<std::string> names;
    for (const CommandDescription& one : program.commands) names.push_back(one.name);
    return "unknown command '" + word + "'" + did_you_mean(word, names) + "; commands are " +
           join(names, ", ");
  }
  if (!is_option) return name + ": unexpected argument '" + word + "'";
  std::vector<std::string> known;
  for (const OptionDescription& option :
       name.empty() ? program.program.options : command_named(program, name, "").options)
    known.insert(known.end(), option.names.begin(), option.names.end());
  const std::string option = word.substr(0, word.find('='));
  return (name.empty() ? "" : name + ": ") + "unknown option '" + option + "'" +
         did_you_mean(option, known);
}

/// CLI11 lists all words it could not place, last ones first; the first unknown option explains the
/// words after it.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::find_if(words.begin(), words.end(),
                                   [](const auto& word) { return word.starts_with("-"); });
  if (option != words.end()) return unknown_word(app, *option);
  if (!words.empty()) return unknown_word(app, words.front());
  if (app.get_subcommands().empty())
    return "a command is needed: " +
           join(description_of(app).commands, ", ", &CommandDescription::name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    const std::string_view message = error.what();  // "--output: 1 required TEXT missing"
    return std::string(message.substr(0, message.find(':'))) + " needs a value";
  }
  return error.what();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::CallForHelp*>(&error)) {
    std::cout << help_page(description_of(app), command_name(app));
    return code(ExitStatus::kDone);
  }
  if (error.get_exit_code() == 0) return app.exit(error);
  std::cerr << "error: " << shown_text(usage_message(app, error))
            << "\nRun with --help for usage.\n";
  return code(ExitStatus::kUsage);
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
      "-V,--version", [json] { return *json ? version_json() : version_text(); },
      "Print the version and exit");
  option->needs(version);
}

constexpr const char* kQuietCommands[] = {"calibrate", "quantize", "scales",   "smooth",
                                          "convert",   "apply",    "generate", "eval",
                                          "sweep",     "inspect",  "synth"};
constexpr const char* kListingCommands[] = {"calibrate", "scales", "convert",
                                            "eval",      "sweep",  "verify"};

/// --quiet and --verbose, of the commands that have something to leave out.
void add_verbosity_options(CLI::App& app) {
  for (const char* name : kListingCommands)
    app.get_subcommand(name)->add_flag_callback(
        "-v,--verbose", [] { set_verbosity(Verbosity::kVerbose); },
        "Print every row of tables of more than 40 rows, instead of a summary");
  for (const char* name : kQuietCommands) {
    CLI::App* command = app.get_subcommand(name);
    CLI::Option* quiet = command->add_flag_callback(
        "-q,--quiet", [] { set_verbosity(Verbosity::kQuiet); },
        "Print neither progress nor a summary of what was written; warnings stay");
    if (CLI::Option* verbose = command->get_option_no_throw("--verbose")) quiet->excludes(verbose);
  }
}

void fetch_named_inputs() {
  TerminalDiagnostics diagnostics;
  fetch_inputs(diagnostics);
}

/// Takes from the process what the command does not need: writing beside its outputs, and the
/// network once the inputs are here. A sweep fetches its inputs later; what launchers of ranks need
/// is not known.
void keep_to_outputs(const CLI::App& command) {
  if (find_launch([](const char* name) { return std::getenv(name); })) return;
  const bool is_sweep = command.get_name() == "sweep";
  Confinement allowed{.writable = {"/dev", "/proc", temporary_folder()}, .may_connect = is_sweep};
  // Where GPU drivers keep what they compile.
  if (const char* home = std::getenv("HOME")) allowed.writable.push_back(fs::path(home) / ".nv");
  if (is_sweep) allowed.writable.push_back(hub_settings().cache);
  for (const std::string& path : written_paths(command))
    allowed.writable.push_back(existing_folder_of(fs::path(path) / ".."));
  confine(allowed);
}

int run_main(int argc, char** argv) {
  CLI::App app("Calibrated FP8 KV-cache scales for 16-bit Hugging Face checkpoints", "kvcal");
  add_version_options(app);
  app.require_subcommand(1);
  std::function<void()> run;
  for (const AddCommand add : kCommands) add(app, run);
  add_verbosity_options(app);
  if (argc == 1) {
    std::cerr << short_help(description_of(app));
    return code(ExitStatus::kUsage);
  }
  try {
    app.parse(argc, argv);
    fetch_named_inputs();
    keep_to_outputs(*app.get_subcommands().front());
    unless_file_changed(run);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  } catch (const RunEnded& ended) {
    return ended.status();
  } catch (const InterruptedRun& interrupted) {
    std::cerr << shown_message(interrupted.what()) << '\n';
    return code(ExitStatus::kInterrupted);
  } catch (const Interrupted&) {
    std::cerr << interrupted_message(app);
    return code(ExitStatus::kInterrupted);
  } catch (const GateMissed& missed) {
    std::cerr << shown_message(missed.what()) << '\n';
    return code(ExitStatus::kGateMissed);
  } catch (const Error& error) {
    std::cerr << "error: " << shown_message(error.message()) << '\n';
    return code(ExitStatus::kBadInput);
  } catch (const std::bad_alloc&) {
    std::cerr << out_of_memory_message(app);
    return code(ExitStatus::kBadInput);
  } catch (const std::exception& error) {
    std::cerr << "error: " << (is_lack_of_threads(error) ? kLackOfThreads : "")
              << shown_message(error.what()) << '\n';
    return code(ExitStatus::kBadInput);
  }
  return code(ExitStatus::kDone);
}

/// A closed standard descriptor would be the next file that is opened, and get what is printed: its
/// place is taken, so that printing fails instead.
void keep_standard_descriptors() {
  while (true) {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || descriptor > STDERR_FILENO) {
      if (descriptor >= 0) ::close(descriptor);
      return;
    }
  }
}

bool has_reader_gone() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/// Status of a run whose text has come to standard output: all of it, or the run has failed. A
/// reader that wanted no more, such as head, is told nothing.
int with_whole_output(int status) {
  errno = 0;
  if (std::cout.flush()) return status;
  if (has_reader_gone()) return 128 + SIGPIPE;
  const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  std::cerr << "error: standard output could not be written whole" << reason << '\n';
  return status == code(ExitStatus::kDone) ? code(ExitStatus::kBadInput) : status;
}

}  // namespace
}  // namespace kvcal

int main(int argc, char** argv) {
  kvcal::keep_standard_descriptors();
  kvcal::handle_signals();
  kvcal::remember_command_line(argc, argv);
  const kvcal::GuardedOutput guarded;
  return kvcal::with_whole_output(
      kvcal::run_on_own_stack([=] { return kvcal::run_main(argc, argv); }));
}
