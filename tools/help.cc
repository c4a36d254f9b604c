#include <cstdlib>
#include <iostream>
#include <utility>

#include "commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "kernels/backends.h"
#include "kvcal_build_facts.h"
#include "kvcal_version.h"
#include "shared_options.h"
#include "shell/command_pages.h"

// The list of commands, and those that tell of the program itself: help, man, completion, version.

namespace kvcal {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

/// Sources, compiler and target of this build. Nothing in it depends on the machine it runs on.
std::string version_json() {
  static const std::vector<std::pair<std::string, std::string>> kLibraries = {KVCAL_LIBRARIES};
  Json libraries = Json::object();
  for (const auto& [name, version] : kLibraries) libraries[name] = text_or_null(version);
  return dump_json({{"kvcal_version", KVCAL_VERSION},
                    {"commit", text_or_null(KVCAL_COMMIT)},
                    {"compiler", {{"name", KVCAL_COMPILER}, {"version", KVCAL_COMPILER_VERSION}}},
                    {"build_type", KVCAL_BUILD_TYPE},
                    {"processor", KVCAL_PROCESSOR},
                    {"cpu_targets", cpu_target_names()},
                    {"gpu", text_or_null(KVCAL_GPU_LANGUAGE)},
                    {"mpi", KVCAL_BUILT_WITH_MPI == 1},
                    {"arrow", KVCAL_BUILT_WITH_ARROW == 1},
                    {"curl", KVCAL_BUILT_WITH_CURL == 1},
                    {"libraries", libraries}});
}

void print_version(bool json) {
  std::cout << (json ? version_json() : "kvcal " KVCAL_VERSION "\n");
}

class HelpCommand : public Subcommand {
 public:
  HelpCommand()
      : Subcommand("help", "Print the help of kvcal or of a command",
                   {{"Help of a command", "kvcal help calibrate"}}) {
    options
        .text("command", command_,
              "A command, or environment: variables of the environment and exit statuses; "
              "default: the help of kvcal itself")
        .check = check_of([](const std::string& name) {
      if (name != kEnvironmentPage) command_named(program_description(), name);
    });
  }
  void run() override { std::cout << help_page(program_description(), command_); }

 private:
  std::string command_;
};

class ManCommand : public Subcommand {
 public:
  ManCommand()
      : Subcommand("man", "Print the man page of kvcal or of a command",
                   {{"Read the page of a command", "man <(kvcal man calibrate)"}}) {
    options.text("command", command_, "Default: the page of kvcal itself").check =
        check_of([](const std::string& name) { command_named(program_description(), name); });
    options.group(kOutput);
    options.flag("--list", is_list_, "Print the names of all pages");
  }
  void run() override {
    const ProgramDescription program = program_description();
    const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
    if (is_list_)
      std::cout << join(man_page_names(program), "\n") << '\n';
    else
      std::cout << man_page(program, command_, epoch ? date_of_epoch(epoch) : "");
  }

 private:
  std::string command_;
  bool is_list_ = false;
};

class CompletionCommand : public Subcommand {
 public:
  CompletionCommand()
      : Subcommand("completion",
                   "Print the script that completes command lines of kvcal in a shell",
                   {{"For the bash that runs", "source <(kvcal completion bash)"}}) {
    options.text("shell", shell_, "bash, zsh or fish").choices_of(completion_shells()).required();
  }
  void run() override { std::cout << completion_script(shell_, program_description()); }

 private:
  std::string shell_;
};

class VersionCommand : public Subcommand {
 public:
  VersionCommand()
      : Subcommand("version", "Print the version of kvcal",
                   {{"Compiler, libraries and targets of this build", "kvcal version --json"}}) {
    declare_json(options, json_, "Print what the program was built of, as JSON");
  }
  void run() override { print_version(json_); }

 private:
  bool json_ = false;
};

ExitStatusMeaning meaning(ExitStatus status, const char* text) {
  return {static_cast<int>(status), text};
}

const MakeSubcommand kHelp = make_subcommand<HelpCommand>, kMan = make_subcommand<ManCommand>,
                     kCompletion = make_subcommand<CompletionCommand>,
                     kVersion = make_subcommand<VersionCommand>;

CommandDescription described(const std::string& name, const std::string& help,
                             const std::vector<ExampleDescription>& examples,
                             const Options& options) {
  CommandDescription command{
      .name = name, .help = help, .options = {}, .arguments = {}, .examples = examples};
  for (const auto& option : options.all())
    if (!option->is_hidden)
      (option->is_argument() ? command.arguments : command.options).push_back(*option);
  command.options.push_back({.names = {"-h", "--help"},
                             .help = "Print this help message and exit",
                             .default_value = "",
                             .limits = "",
                             .group = kPrinting,
                             .kind = ValueKind::kNone,
                             .choices = {}});
  complete_description(command);
  return command;
}

}  // namespace

Json Subcommand::call(Diagnostics&) {
  KVCAL_CHECK(python.name.empty());
  return nullptr;
}

CommandDescription Subcommand::description() const {
  CommandDescription command = described(name, help, examples, options);
  command.python = python;
  return command;
}

Subcommands all_commands() {
  Subcommands commands;
  for (const MakeSubcommand make :
       {kCalibrate, kTry, kQuantize, kScales, kSmooth, kConvert, kApply, kGenerate, kEval, kSweep,
        kInspect, kVerify, kEngines, kFamilies, kSynth, kCompletion, kMan, kHelp, kVersion})
    declare_colours(commands.emplace_back(make())->options);
  return commands;
}

ProgramOptions::ProgramOptions() {
  options.group(kPrinting);
  // It stands first, so that it is known when --version answers.
  options.flag("--json", json_, "With --version: what the program was built of, as JSON")
      .needs("--version");
  options.group(kOutput);
  options.flag(
      "-V,--version",
      [this](bool) {
        print_version(json_);
        throw RunEnded(static_cast<int>(ExitStatus::kDone));
      },
      "Print the version and exit");
}

ProgramDescription program_description() {
  ProgramDescription program{
      .version = KVCAL_VERSION,
      .program = described(
          "kvcal", kProgramHelp,
          {{"Make a checkpoint with calibrated scales of its FP8 cache",
            "kvcal calibrate meta-llama/Llama-3.2-1B-Instruct -o Llama-FP8-KV"},
           {"See whether an engine would use them", "kvcal verify Llama-FP8-KV --engine vllm"}},
          ProgramOptions().options),
      .commands = {},
      .exit_statuses = {
          meaning(ExitStatus::kDone, "The work is done."),
          meaning(ExitStatus::kBadInput,
                  "An input or the machine does not allow it; the message says what was found "
                  "where."),
          meaning(ExitStatus::kUsage, "The command line is wrong."),
          meaning(ExitStatus::kGateMissed,
                  "The work is done, and a limit that an option set is exceeded."),
          meaning(ExitStatus::kInterrupted, "A signal ended it.")}};
  std::vector<std::string> names;
  for (const auto& command : all_commands()) {
    program.commands.push_back(command->description());
    names.push_back(command->name);
  }
  for (CommandDescription& command : program.commands)
    for (OptionDescription& argument : command.arguments)
      if (argument.names.front() == "command") {
        argument.kind = ValueKind::kChoice;
        argument.choices = names;
        if (command.name == "help") argument.choices.emplace_back(kEnvironmentPage);
      }
  return program;
}

}  // namespace kvcal
