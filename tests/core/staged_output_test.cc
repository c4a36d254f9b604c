#include "core/output.h"

#include "core/error.h"
#include "core/file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contents_of;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

using Contents = std::map<std::string, std::string>;

namespace {

/// contents_of without the marks of outputs.
Contents unmarked_in(const fs::path& folder) {
  Contents contents = contents_of(folder);
  std::erase_if(contents, [](const auto& file) { return file.first.ends_with(kMarkName); });
  return contents;
}

/// Fails at its step.
class Failing : public StagedOutput {
 public:
  enum class Step { kPrepare, kPlace };
  explicit Failing(Step step) : step_(step) {}
  void prepare() override {
    if (step_ == Step::kPrepare) fail("not prepared");
  }
  void place() override { fail("not placed"); }
  void take_back() noexcept override {}
  void settle() override {}

 private:
  Step step_;
};

std::unique_ptr<AtomicFile> file_of(const fs::path& target, std::string_view text) {
  auto file = std::make_unique<AtomicFile>(target, true);
  write_text_file(file->path(), text);
  return file;
}

/// Adds a new file, a file and a folder that replace others, and a new folder.
struct FourOutputs {
  explicit FourOutputs(const ScratchFolder& scratch)
      : replacing(scratch / "old", true), made(scratch / "made", false) {
    write_file(replacing.path() / "x", "new");
    write_file(made.path() / "y", "new");
    outputs.add(file_of(scratch / "file", "new"));
    outputs.add(file_of(scratch / "old.txt", "new"));
    outputs.add(replacing);
    outputs.add(made);
  }
  AtomicDirectory replacing, made;
  StagedOutputs outputs;
};

void make_old(const ScratchFolder& scratch) {
  write_file(scratch / "old.txt", "old");
  AtomicDirectory old(scratch / "old", false);
  write_file(old.path() / "x", "old");
  old.commit();
}

}  // namespace

TEST_CASE("staged outputs: appear together, and what they replace is gone") {
  const ScratchFolder scratch;
  make_old(scratch);
  {
    FourOutputs four(scratch);
    CHECK(unmarked_in(scratch / "old") == Contents{{"x", "old"}});
    CHECK(!fs::exists(scratch / "file"));
    four.outputs.commit();
  }
  CHECK(unmarked_in(scratch.path()) ==
        Contents{{"file", "new"}, {"made/y", "new"}, {"old.txt", "new"}, {"old/x", "new"}});
}

TEST_CASE("staged outputs: where one fails, everything is as it was") {
  using Step = Failing::Step;
  for (const Step step : {Step::kPrepare, Step::kPlace}) {
    const ScratchFolder scratch;
    make_old(scratch);
    const Contents before = contents_of(scratch.path());
    {
      FourOutputs four(scratch);
      four.outputs.add(std::make_unique<Failing>(step));
      CHECK(message_of([&] { four.outputs.commit(); }) ==
            (step == Step::kPrepare ? "not prepared" : "not placed"));
    }
    CHECK(contents_of(scratch.path()) == before);
  }
}

TEST_CASE("staged outputs: a file that appeared meanwhile is not replaced, nor anything else") {
  const ScratchFolder scratch;
  AtomicFile late(scratch / "late", false);
  StagedOutputs outputs;
  outputs.add(file_of(scratch / "file", "new"));
  outputs.add(late);
  write_file(scratch / "late", "theirs");
  CHECK(message_of([&] { outputs.commit(); }) ==
        (scratch / "late").string() +
            ": appeared while the output was written; nothing was replaced");
  CHECK(!fs::exists(scratch / "file"));
}

TEST_CASE("outputs: a folder that is replaced by a link meanwhile keeps what is there") {
  const ScratchFolder scratch;
  write_file(scratch / "victim" / "out" / "x", "precious");
  mark_output(scratch / "victim" / "out");
  write_file(scratch / "victim" / "page", "precious");
  write_file(scratch / "a" / "page", "old");
  const Contents before = contents_of(scratch / "victim");
  {
    AtomicDirectory folder(scratch / "a" / "out", true);
    AtomicFile file(scratch / "a" / "page", true);
    write_file(folder.path() / "x", "new");
    // As somebody would who may write in the folder above.
    fs::rename(scratch / "a", scratch / "moved");
    fs::create_directory_symlink("victim", scratch / "a");
    for (AtomicOutput* output :
         {static_cast<AtomicOutput*>(&folder), static_cast<AtomicOutput*>(&file)})
      CHECK(message_of([&] { output->commit(); }) ==
            output->path().string() + ": was moved or removed while the output was written there");
  }
  CHECK(contents_of(scratch / "victim") == before);
  CHECK(contents_of(scratch / "moved") == Contents{{"page", "old"}});
}

TEST_CASE("outputs: a folder that was moved gets its outputs where its path leads to it again") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "a");
  AtomicDirectory folder(scratch / "a" / "out", false);
  AtomicFile file(scratch / "a" / "page", false);
  fs::rename(scratch / "a", scratch / "moved");
  fs::create_directory_symlink("moved", scratch / "a");
  write_file(folder.path() / "x", "new");
  write_text_file(file.path(), "new");
  folder.commit();
  file.commit();
  CHECK(unmarked_in(scratch / "moved") == Contents{{"out/x", "new"}, {"page", "new"}});
}

TEST_CASE("outputs: a link in the place of an unfinished file is not followed") {
  const ScratchFolder scratch;
  write_file(scratch / "victim", "precious");
  AtomicFile file(scratch / "page", false);
  fs::remove(file.path());
  fs::create_symlink("victim", file.path());
  CHECK_THROWS_AS(write_text_file(file.path(), "new"), Error);
  CHECK_THROWS_AS(file.commit(), Error);
  CHECK(read_text(scratch / "victim") == "precious");
  CHECK_FALSE(fs::exists(scratch / "page"));
}
