// A plug-in is one file and one row. A file without its row fails here by name.
#include <set>
#include <sstream>

#include "core/file.h"
#include "datasets/dataset_reader.h"
#include "engines/engine_rules.h"
#include "export/writer.h"
#include "family/architecture.h"
#include "family/wrapper.h"
#include "kernels/backends.h"
#include "quant/observer.h"
#include "stored/stored_format.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

using Names = std::set<std::string>;

const fs::path kRoot = test::source_folder();

/// Stems of the source files in a folder, as registries compare names.
Names stems(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(kRoot / folder))
    if (entry.path().extension() == ".cc")
      names.insert(normalised_name(entry.path().stem().string()));
  return names;
}

template <class Entry>
Names names_of(const Registry<Entry>& registry) {
  Names names;
  for (const std::string& name : registry.names()) names.insert(normalised_name(name));
  return names;
}

/// Every word of [A-Za-z0-9_] that stands between before and after in the sources of a folder.
Names words_between(const fs::path& folder, std::string_view before, std::string_view after) {
  Names names;
  for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_text(entry.path());
    for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
      const size_t begin = at + before.size();
      const size_t end = text.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_", begin);
      if (end > begin && text.compare(end, after.size(), after) == 0)
        names.insert(text.substr(begin, end - begin));
    }
  }
  return names;
}

}  // namespace

TEST_CASE("every writer's file has its row") {
  CHECK(stems("lib/export/writers") == names_of(kWriters));
}

TEST_CASE("every stored format's file has its row") {
  constexpr std::string_view kEnding = "_format";
  Names files, table;
  for (const std::string& stem : stems("lib/stored/formats")) {
    INFO(stem);
    REQUIRE(stem.ends_with(kEnding));
    files.insert(stem.substr(0, stem.size() - kEnding.size()));
  }
  for (const StoredFormat* format : stored_formats()) table.insert(normalised_name(format->name));
  CHECK(files == table);
}

TEST_CASE("every lineage's file has its row") {
  CHECK(stems("lib/family/families") == words_between("lib/family", "  ROW(", ")"));
}

TEST_CASE("every family has its test") {
  Names table, tested;
  for (const Architecture& architecture : architectures())
    table.insert(std::string(architecture.name));
  std::istringstream names(KVCAL_TESTED_FAMILIES);
  for (std::string name; names >> name;) tested.insert(name);
  CHECK(tested == table);
}

TEST_CASE("every fixture is of a family, whose test checks it") {
  for (const auto& entry : fs::directory_iterator(kRoot / "tests" / "fixtures" / "models")) {
    INFO(entry.path().string());
    CHECK_NOTHROW(text_model_of(
        parse_json(read_text(entry.path() / "config.json"), {.has_python_constants = true})));
  }
}

TEST_CASE("every wrapper has its fixture") {
  Names found;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests" / "fixtures" / "models"))
    found.insert(required_string(
        parse_json(read_text(entry.path() / "config.json"), {.has_python_constants = true}),
        "model_type"));
  for (const Wrapper& wrapper : wrappers()) {
    INFO(wrapper.model_type);
    CHECK(found.contains(std::string(wrapper.model_type)));
  }
}

TEST_CASE("every observer's function has its row") {
  Names rows;
  for (const auto& [name, row] : observers().rows())
    if (row.make || row.searches_weights) rows.insert(name + "_observer");
  CHECK(words_between("lib/quant/observers", "ObserverRow ", "()") == rows);
}

TEST_CASE("every data set reader's file has its row") {
  CHECK(stems("lib/datasets/readers") == names_of(dataset_readers()));
}

TEST_CASE("every engine's file has its row") {
  const Names made = words_between("lib/engines/engines", "EngineRules ", "(std::string_view");
  Names rows;
  for (std::string name : names_of(engine_rules())) {
    std::erase(name, '.');
    rows.insert(name + "_engine");
  }
  CHECK(made == rows);
  for (const std::string& file : stems("lib/engines/engines")) {
    INFO(file);
    CHECK(made.contains(file + "_engine"));
  }
}

TEST_CASE("every backend's folder has its row") {
  Names folders;
  for (const auto& entry : fs::directory_iterator(kRoot / "kernels"))
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  // kernels/gpu is one folder for every vendor, and has a row in builds with a GPU.
  Names rows = names_of(kBackends);
  CHECK(rows.erase(std::string(gpu_device_name())) == (gpu_device_name().empty() ? 0 : 1));
  rows.insert("gpu");
  CHECK(folders == rows);
}

TEST_CASE("every subcommand is in the list of commands") {
  const std::string text = read_text(kRoot / "tools" / "help.cc");
  const Names commands = words_between("tools", "const MakeSubcommand k", " = make_subcommand<");
  CHECK(commands.size() >= 15);
  for (const std::string& command : commands) {
    INFO(command);
    CHECK(text.find("k" + command) != std::string::npos);
  }
}
