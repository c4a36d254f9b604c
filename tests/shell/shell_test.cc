#include <sstream>

#include "shell/command_pages.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;

namespace {

OptionDescription option(std::vector<std::string> names, std::string help, ValueKind kind) {
  OptionDescription one;
  one.names = std::move(names);
  one.help = std::move(help);
  one.kind = kind;
  return one;
}

ProgramDescription program() {
  OptionDescription task = option({"--task"}, "What to do: 'kl' [or so]", ValueKind::kChoice);
  task.choices = {"kl", "gsm8k"};
  task.is_required = true;
  OptionDescription formats = option({"--format"}, "Forms", ValueKind::kChoice);
  formats.choices = {"tgi", "quark"};
  formats.are_choices_joined = formats.is_repeatable = true;
  OptionDescription count = option({"-n", "--count"}, "Number", ValueKind::kNumber);
  count.limits = "0 to 9";
  count.default_value = "3";
  count.group = "More";
  const CommandDescription eval{
      .name = "eval",
      .help = "Measure",
      .options = {option({"-h", "--help"}, "Print help", ValueKind::kNone), task, formats, count},
      .arguments = {option({"model"}, "Folder of a model", ValueKind::kFolder)},
      .examples = {{"The usual", "kvcal eval M --task kl"}, {"Long", "kvcal eval \\\n      M"}},
      .environment = {{"A, B=1", "Letters"}}};
  return {.version = "1.2",
          .program = {.name = "kvcal",
                      .help = "Scales",
                      .options = {option({"--version"}, "Print the version", ValueKind::kNone)},
                      .arguments = {}},
          .commands = {eval},
          .exit_statuses = {{0, "Done."}, {3, "A limit is missed."}}};
}

}  // namespace

TEST_CASE("shell: a placeholder stands for the value of each kind") {
  CHECK(option({}, "", ValueKind::kNone).placeholder().empty());
  CHECK(option({}, "", ValueKind::kFile).placeholder() == "FILE");
  CHECK(option({}, "", ValueKind::kPath).placeholder() == "PATH");
  OptionDescription joined = option({}, "", ValueKind::kChoice);
  CHECK(joined.placeholder() == "NAME");
  joined.are_choices_joined = true;
  CHECK(joined.placeholder() == "NAME[+NAME]...");
}

TEST_CASE("shell: the man page of a command explains each option") {
  const std::string page = man_page(program(), "eval", "2026-01-31");
  CHECK(contains(page, ".TH KVCAL\\-EVAL 1 \"2026-01-31\" \"kvcal 1.2\" \"User Commands\"\n"));
  CHECK(contains(page, ".SH NAME\nkvcal\\-eval \\- Measure\n"));
  CHECK(contains(page, "\\fBkvcal eval\\fR [\\fImodel\\fR] \\fB\\-\\-task\\fR \\fINAME\\fR"));
  CHECK(contains(page, "\\fB\\-\\-task\\fR \\fINAME\\fR (required)\n"));
  CHECK(contains(page, "What to do: 'kl' [or so]. One of kl, gsm8k.\n"));
  CHECK(contains(page, "Forms. One of tgi, quark. May be repeated.\n"));
  CHECK(contains(page, ".SS More\n.TP\n\\fB\\-n\\fR, \\fB\\-\\-count\\fR \\fINUMBER\\fR\n"));
  CHECK(contains(page, "Number. 0 to 9. Default: 3.\n"));
  CHECK(contains(page, ".TP\n\\fB3\\fR\nA limit is missed.\n"));
}

TEST_CASE("shell: the man page of a command has examples and the environment") {
  const std::string page = man_page(program(), "eval", "");
  CHECK(contains(page, ".SH ENVIRONMENT\n.TP\n\\fBA, B=1\\fR\nLetters.\n"));
  CHECK(contains(page,
                 ".SH EXAMPLES\nThe usual:\n.PP\n.RS 4\n.nf\nkvcal eval M \\-\\-task kl\n.fi\n"
                 ".RE\n.PP\nLong:\n.PP\n.RS 4\n.nf\nkvcal eval \\e\n      M\n.fi\n.RE\n.SH"));
  CHECK(contains(man_page(program(), "", ""), kNoVariables));
}

TEST_CASE("shell: the help of a command has usage, options by group, and what surrounds them") {
  CHECK(help_page(program(), "eval") ==
        "Usage: kvcal eval [MODEL] --task NAME [OPTION]...\n\n"
        "Measure\n\n"
        "Arguments:\n"
        "  MODEL                       Folder of a model\n\n"
        "Options:\n"
        "  -h, --help                  Print help\n"
        "      --task NAME             What to do: 'kl' [or so] [required; one of kl,\n"
        "                              gsm8k]\n"
        "      --format NAME[+NAME]...\n"
        "                              Forms [one of tgi, quark; may be repeated]\n\n"
        "More:\n"
        "  -n, --count NUMBER          Number [0 to 9; default: 3]\n\n"
        "Examples:\n"
        "  # The usual\n"
        "  kvcal eval M --task kl\n"
        "  # Long\n"
        "  kvcal eval \\\n      M\n\n"
        "kvcal help environment lists variables of the environment and exit statuses.\n");
}

TEST_CASE("shell: the environment and the exit statuses have a page of their own") {
  ProgramDescription whole = program();
  whole.program.environment = {{"A, B=1", "Letters"}};
  CHECK(contains(help_page(whole, kEnvironmentPage),
                 "\nEnvironment:\n"
                 "  A, B=1                      Letters\n\n"
                 "Exit status:\n"
                 "  0    Done.\n"
                 "  3    A limit is missed.\n"));
  CHECK(contains(help_page(program(), kEnvironmentPage),
                 "\nEnvironment:\n  No variable changes what it does.\n"));
}

TEST_CASE("shell: no line of a help is wider than a terminal") {
  ProgramDescription wide = program();
  OptionDescription& task = wide.commands[0].options[1];
  for (int i = 0; i < 60; ++i) task.help += " word" + std::to_string(i);
  for (const std::string& page : {help_page(wide, "eval"), help_page(wide, ""), short_help(wide)}) {
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= kHelpColumns);
      CHECK_FALSE(line.ends_with(' '));
    }
  }
}

TEST_CASE("shell: the help of the program lists its commands, and knows no other") {
  CHECK(short_help(program()).starts_with(
      "Usage: kvcal COMMAND [ARGUMENT]... [OPTION]...\n\nScales\n\n"
      "Commands:\n  eval  Measure\n"));
  const std::string page = help_page(program(), "");
  CHECK(contains(page, "\nOptions:\n      --version"));
  CHECK(message_of([] { help_page(program(), "evil"); }) ==
        "unknown command 'evil' (did you mean 'eval'?); commands are eval");
}

TEST_CASE("shell: the program's page names the pages of the commands") {
  CHECK(man_page_names(program()) == std::vector<std::string>{"kvcal", "kvcal-eval"});
  const std::string page = man_page(program(), "", "");
  CHECK(contains(page, ".TP\n.BR kvcal\\-eval (1)\nMeasure.\n"));
  CHECK(contains(page, ".SH SEE ALSO\n.BR kvcal\\-eval (1)\n"));
  CHECK(message_of([] { man_page(program(), "evil", ""); }) ==
        "unknown command 'evil' (did you mean 'eval'?); commands are eval");
}

TEST_CASE("shell: the date of a page is the day of SOURCE_DATE_EPOCH") {
  CHECK(date_of_epoch("0") == "1970-01-01");
  CHECK(date_of_epoch("1700000000") == "2023-11-14");
  for (const char* bad : {"", "-1", "1e3", "253402300800", "today"})
    CHECK(contains(message_of([&] { date_of_epoch(bad); }), "expected seconds since 1970"));
}

TEST_CASE("shell: each script offers commands, options and the values of options") {
  const std::string bash = completion_script("bash", program());
  CHECK(contains(bash, "compgen -W 'eval --version'"));
  CHECK(contains(bash, "options='-h --help --task --format -n --count'\n      kind=folders\n"));
  CHECK(contains(bash, "--task) kind=words words='kl gsm8k' is_value=1 ;;\n"));
  CHECK(contains(bash, "--format) kind=joined words='tgi quark' is_value=1 ;;\n"));
  const std::string zsh = completion_script("zsh", program());
  CHECK(contains(zsh, "'--task=[What to do\\: '\\''kl'\\'' \\[or so\\]]:task:(kl gsm8k)'"));
  CHECK(contains(zsh, "'(-n --count)'{-n,--count}'[Number]:count: '"));
  CHECK(contains(zsh, "'1::model:_files -/'"));
  const std::string fish = completion_script("fish", program());
  CHECK(contains(fish, "-l task -x -a 'kl gsm8k' -d 'What to do: \\'kl\\' [or so]'\n"));
  CHECK(contains(fish, "-a '(__kvcal_joined tgi quark)'"));
  CHECK(contains(fish, "-n '__kvcal_runs eval' -a '(__fish_complete_directories)'\n"));
}

TEST_CASE("shell: a shell that is not known is named with those that are") {
  CHECK(completion_shells() == std::vector<std::string>{"bash", "zsh", "fish"});
  CHECK(contains(message_of([] { completion_script("fisch", program()); }),
                 "unknown shell 'fisch' (did you mean 'fish'?); known are bash, zsh, fish"));
}
