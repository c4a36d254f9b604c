#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <system_error>

#include "commands.h"
#include "core/error.h"
#include "core/file_in_use.h"
#include "core/files_read.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/process.h"
#include "core/registry.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "hub/hub_id.h"
#include "ranks/rank_session.h"
#include "run/command_paths.h"
#include "run/state_options.h"
#include "shell/command_pages.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

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
  remember_files_read();
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
  const ProgramDescription program = program_description();
  const std::string name = command_name(app);
  const bool is_option = word.starts_with('-');
  if (name.empty() && !is_option) return unknown_command(program, word);
  if (!is_option) return name + ": unexpected argument '" + word + "'";
  std::vector<std::string> known;
  for (const OptionDescription& option :
       name.empty() ? program.program.options : command_named(program, name).options)
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
           join(program_description().commands, ", ", &CommandDescription::name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    const std::string_view message = error.what();  // "--output: 1 required TEXT missing"
    return std::string(message.substr(0, message.find(':'))) + " needs a value";
  }
  return error.what();
}

int wrong_command_line(const std::string& message) {
  std::cerr << "error: " << shown_message(message) << "\nRun with --help for usage.\n";
  return code(ExitStatus::kUsage);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::CallForHelp*>(&error)) {
    std::cout << help_page(program_description(), command_name(app));
    return code(ExitStatus::kDone);
  }
  if (error.get_exit_code() == 0) return app.exit(error);
  return wrong_command_line(shown_text(usage_message(app, error)));
}

/// A sweep keeps what it has done; all else appears complete or not at all.
const char* interrupted_message(const CLI::App& app) {
  if (command_name(app) == "sweep")
    return "interrupted; what is done is kept, and the same command goes on from there\n";
  if (command_name(app) == "try")
    return "interrupted; a checkpoint at --output is whole where it is there\n";
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

/// The words of the command line become the option's value. false: they are none.
bool give_words(const CLI::App& command, Option& option, std::vector<std::string> words) {
  for (const std::string& other : option.excluded)
    if (command.get_option(other)->count() > 0) throw CLI::ExcludesError(option.name(), other);
  if (!option.needed.empty() && command.get_option(option.needed)->count() == 0)
    throw CLI::RequiresError(option.name(), option.needed);
  bool is_true = false;
  if (option.is_boolean && !CLI::detail::lexical_cast(words.front(), is_true)) return false;
  if (option.is_boolean) words = {is_true ? "true" : "false"};
  option.give(words);
  return true;
}

void add_option(CLI::App& command, Option& option) {
  CLI::Option* added =
      command.add_option(option.spelling, [&command, &option](const CLI::results_t& words) {
        return give_words(command, option, words);
      });
  if (option.is_flag()) added->expected(0)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (option.is_repeatable)
    added->expected(CLI::detail::expected_max_vector_size)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (option.may_lack_value) added->expected(0, 1);
  if (option.delimiter) added->delimiter(option.delimiter);
  if (option.check) added->check(CLI::Validator(option.check, ""));
  if (option.is_required) added->required();
  if (!option.freed.empty())
    added
        ->each([&command, &option](const std::string&) {
          command.get_option(option.freed)->required(false);
        })
        ->trigger_on_parse();
}

void add_options(CLI::App& command, const Options& options) {
  for (const auto& option : options.all())
    if (!option->is_internal) add_option(command, *option);
}

/// chosen: set where the user chose this command.
void add_command(CLI::App& app, Subcommand& subcommand, Subcommand*& chosen) {
  CLI::App* command = app.add_subcommand(subcommand.name);
  add_options(*command, subcommand.options);
  command->callback([&subcommand, &chosen] {
    if (const std::string missing = subcommand.missing(); !missing.empty())
      throw CLI::RequiredError(missing);
    chosen = &subcommand;
  });
}

/// Takes from the process what the command does not need: writing beside its outputs, and the
/// network once the inputs are here. A sweep fetches its inputs later; what launchers of ranks need
/// is not known.
void keep_to_outputs(const Subcommand& command) {
  if (find_launch([](const char* name) { return std::getenv(name); })) return;
  const bool is_sweep = command.name == "sweep";
  Confinement allowed{.writable = {"/dev", "/proc", temporary_folder()}, .may_connect = is_sweep};
  // Where GPU drivers keep what they compile.
  if (const char* home = std::getenv("HOME")) allowed.writable.push_back(fs::path(home) / ".nv");
  if (is_sweep) allowed.writable.push_back(hub_settings().cache);
  for (const std::string& path : command.options.written_paths())
    allowed.writable.push_back(existing_folder_of(fs::path(path) / ".."));
  confine(allowed);
}

/// Whether the output is there already, as --if-done asks.
bool is_done(const Subcommand& command) {
  if (!command.done || !command.done->is_asked_for()) return false;
  if (find_launch([](const char* name) { return std::getenv(name); }))
    fail_usage("--if-done: the command runs in one process, without a launcher of ranks");
  if (!command.done->is_done(command.name, program_description().version)) return false;
  std::cout << command.done->told();
  return true;
}

void run_command(Subcommand& command) {
  {
    TerminalDiagnostics diagnostics;
    command.options.fetch(diagnostics);
  }
  if (is_done(command)) return;
  keep_to_outputs(command);
  keep_memory_back();
  unless_file_changed([&] { command.run(); });
  if (command.done) command.done->record();
}

int run_main(int argc, char** argv) {
  if (argc == 1) {
    std::cerr << short_help(program_description());
    return code(ExitStatus::kUsage);
  }
  CLI::App app(kProgramHelp, "kvcal");
  const ProgramOptions program;
  const Subcommands commands = all_commands();
  add_options(app, program.options);
  app.require_subcommand(1);
  Subcommand* chosen = nullptr;
  for (const auto& command : commands) add_command(app, *command, chosen);
  try {
    app.parse(argc, argv);
    run_command(*chosen);
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
  } catch (const UsageError& error) {
    return wrong_command_line(error.message());
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
  kvcal::end_without_memory();
  kvcal::remember_command_line(argc, argv);
  int status = 0;
  {
    const kvcal::GuardedOutput guarded;
    status = kvcal::with_whole_output(
        kvcal::run_on_own_stack([=] { return kvcal::run_main(argc, argv); }));
  }
#ifndef __SANITIZE_ADDRESS__  // it reports at the end what was never freed
  // All is written. What libraries do at the end fails where they lacked memory at the start.
  std::_Exit(status);
#endif
  return status;
}
