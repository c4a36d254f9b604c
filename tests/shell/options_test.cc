#include "shell/options.h"

#include "core/error.h"
#include "shell/command_pages.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;

namespace {

/// One option of each kind, with what they have read.
struct Declared {
  Declared() {
    options.text("model", model, "Folder").of_kind(ValueKind::kFolder).required();
    options.group("Numbers");
    options.number("-n,--count", count, "Number", 1, 9).old_name("--number");
    options.number("--budget", budget, "Limit", 0.0, 1e6);
    options.numbers("--layers", layers, "Layers");
    options.number_text("--share", share, "Part", parse_share, "float | str").needs("--count");
    options.group("Words");
    options.list("--for", engines, "Engine").python("engine");
    options.flag("--fast", is_fast, "Quickly").excludes({"--count"});
    options.boolean("--bos-token", bos, "With it");
    options.text("--form", form, "Form").only({"a", "b"});
    options.text("-o,--output", output, "Written").written(ValueKind::kFolder).program_only();
  }
  static void parse_share(const std::string& text) {
    if (text != "1%" && text != "0.01") fail("found '", text, "', expected a share");
  }

  std::string model, share, form = "a", output;
  int64_t count = 3;
  std::optional<double> budget;
  std::vector<int64_t> layers;
  std::vector<std::string> engines;
  bool is_fast = false;
  std::optional<bool> bos;
  Options options;
};

std::string fault_of(const Json& arguments) {
  Declared declared;
  return message_of([&] { declared.options.read(arguments); });
}

}  // namespace

TEST_CASE("options: a declaration has all that the pages say") {
  const Declared declared;
  const Option& count = declared.options.at("--count");
  CHECK(count.names == std::vector<std::string>{"-n", "--count"});
  CHECK(count.spelling == "-n,--count,--number");
  CHECK(count.kind == ValueKind::kNumber);
  CHECK(count.limits == "1 to 9");
  CHECK(count.default_value == "3");
  CHECK(count.group == "Numbers");
  CHECK(declared.options.at("--budget").limits == "0 or more");
  CHECK(declared.options.at("--budget").default_value.empty());
  CHECK(declared.options.at("--form").choices == std::vector<std::string>{"a", "b"});
  CHECK(declared.options.at("model").is_argument());
  CHECK(declared.options.at("--layers").is_repeatable);
}

TEST_CASE("options: words become values") {
  Declared declared;
  for (const auto& option : declared.options.all()) {
    if (option->name() == "--count") option->give({"5"});
    if (option->name() == "--layers") option->give({"0", "7"});
    if (option->name() == "--output") option->give({"out"});
    if (option->name() == "--bos-token") option->give({"false"});
  }
  CHECK(declared.count == 5);
  CHECK(declared.layers == std::vector<int64_t>{0, 7});
  CHECK(declared.bos == false);
  CHECK(declared.options.is_given("--count"));
  CHECK_FALSE(declared.options.is_given("--budget"));
  CHECK(declared.options.written_paths() == std::vector<std::string>{"out"});
  CHECK(contains(declared.options.at("--count").check("10"), "expected an integer from 1 to 9"));
  CHECK(declared.options.at("--count").check("9").empty());
  CHECK(declared.options.at("--form").check("c") == "'c' is unknown; known are a, b");
  CHECK(declared.options.at("--share").check("soon") == "found 'soon', expected a share");
  CHECK(declared.options.at("--share").check("01") == "found '01', expected no leading zero");
}

TEST_CASE("options: arguments of Python become the same values") {
  Declared declared;
  declared.options.read({{"model", "m"},
                         {"count", 5},
                         {"budget", 0.25},
                         {"layers", 4},
                         {"share", 0.01},
                         {"engine", "vllm"},
                         {"fast", nullptr},
                         {"bos_token", true}});
  CHECK(declared.model == "m");
  CHECK(declared.count == 5);
  CHECK(declared.budget == 0.25);
  CHECK(declared.layers == std::vector<int64_t>{4});
  CHECK(declared.share == "0.01");
  CHECK(declared.engines == std::vector<std::string>{"vllm"});
  CHECK(declared.bos == true);
  CHECK(declared.options.shown("--for") == "engine");
  Declared flag;
  flag.options.read({{"model", "m"}, {"count", 5}, {"fast", false}});
  CHECK_FALSE(flag.options.is_given("--fast"));
}

TEST_CASE("options: an error of an argument of Python names it") {
  CHECK(fault_of({{"model", "m"}, {"output", "out"}}) == "unknown argument 'output'");
  CHECK(fault_of({{"model", ""}}) == "model: is empty");
  CHECK(fault_of({{"count", 5}}) == "model: is missing");
  CHECK(fault_of({{"model", "m"}, {"count", 0}}) ==
        "count: found '0', expected an integer from 1 to 9");
  CHECK(contains(fault_of({{"model", "m"}, {"count", "5"}}), "count"));
  CHECK(contains(fault_of({{"model", "m"}, {"count", 5}, {"share", true}}),
                 "expected a number or a string"));
  CHECK(contains(fault_of({{"model", "m"}, {"engine", {1}}}), "engine"));
  CHECK(contains(fault_of({{"model", "m"}, {"layers", {-1}}}), "layers: found '-1'"));
  CHECK(fault_of({{"model", "m"}, {"share", "1%"}}) == "share requires count");
  CHECK(fault_of({{"model", "m"}, {"fast", true}, {"count", 1}}) == "fast excludes count");
}

TEST_CASE("options: Python's functions are made of them") {
  const Declared declared;
  CommandDescription command{.name = "work",
                             .help = "",
                             .options = {},
                             .arguments = {},
                             .python = {"do", "dict", "Works."}};
  for (const auto& option : declared.options.all())
    (option->is_argument() ? command.arguments : command.options).push_back(*option);
  const std::string module = python_module(
      {.version = "1", .program = command, .commands = {command}, .exit_statuses = {}});
  CHECK(contains(module,
                 "def do(\n    model: Path,\n    *,\n    count: int | None = None,\n"
                 "    budget: float | None = None,\n    layers: Layers | None = None,\n"
                 "    share: float | str | None = None,\n    engine: Names | None = None,\n"
                 "    fast: bool = False,\n    bos_token: bool | None = None,\n"
                 "    form: str | None = None,\n    progress: Progress | None = None,\n) -> dict:\n"
                 "    \"\"\"Works.\n    \"\"\"\n    return call(\"work\", locals())\n"));
}
