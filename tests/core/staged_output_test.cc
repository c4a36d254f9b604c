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
        (scratch / "late").string() + ": exists; pass --overwrite to replace it");
  CHECK(!fs::exists(scratch / "file"));
}
