#include "sweep/sweep_folder.h"

#include <vector>

#include "core/folder.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;
using Use = SweepFolder::Use;

namespace {

const std::string kFingerprint = "0123456789abcdef0123456789abcdef";

std::string refusal(const fs::path& path, Use use) {
  SilentDiagnostics diagnostics;
  return message_of([&] { SweepFolder(path, use, diagnostics); });
}

}  // namespace

TEST_CASE("sweep folder: a folder of something else is refused and left as it is") {
  const ScratchFolder scratch;
  write_file(scratch / "other" / "note.txt", "x");
  write_file(scratch / "file", "x");
  for (const Use use : {Use::kWhole, Use::kPart, Use::kLook}) {
    CHECK(refusal(scratch / "other", use) == (scratch / "other").string() +
                                                 ": holds something else than a sweep's results; "
                                                 "name a new folder");
    CHECK(refusal(scratch / "file", use) == (scratch / "file").string() + ": is no folder");
  }
  CHECK(test::contents_of(scratch / "other").size() == 1);
}

TEST_CASE("sweep folder: a link in it is refused, whatever it leads to") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  { const SweepFolder made(scratch / "sweep", Use::kWhole, diagnostics); }
  write_file(scratch / "model" / "config.json", "{}");
  fs::create_symlink("../../model/config.json", scratch / "sweep" / "cells" / "a.json");
  for (const Use use : {Use::kWhole, Use::kPart, Use::kLook})
    CHECK(test::contains(refusal(scratch / "sweep", use), "cells/a.json: is a symbolic link"));
  CHECK(read_text(scratch / "model" / "config.json") == "{}");
}

TEST_CASE("sweep folder: looking makes nothing, a run makes the folders of its pieces") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder looked(scratch / "out", Use::kLook, diagnostics);
  CHECK_FALSE(looked.may_write());
  CHECK_FALSE(is_there(scratch / "out"));
  const SweepFolder made(scratch / "out", Use::kWhole, diagnostics);
  for (const char* folder : {"cells", "calibrations", "checkpoints", "statistics", "locks"})
    CHECK(is_folder(made.path() / folder));
}

TEST_CASE("sweep folder: a whole run is alone, runs of some cells share the folder") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "out";
  const std::string in_use =
      path.string() + ": is in use by another run of sweep; wait for it, or name another folder";
  SilentDiagnostics diagnostics;
  {
    const SweepFolder whole(path, Use::kWhole, diagnostics);
    CHECK(refusal(path, Use::kWhole) == in_use);
    CHECK(refusal(path, Use::kPart) == in_use);
    CHECK(refusal(path, Use::kTask) == "no error");
    CHECK(refusal(path, Use::kLook) == "no error");
  }
  const SweepFolder part(path, Use::kPart, diagnostics);
  CHECK(refusal(path, Use::kPart) == "no error");
  CHECK(refusal(path, Use::kWhole) == in_use);
}

TEST_CASE("sweep folder: a whole run removes what killed runs left, nothing else") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "out";
  SilentDiagnostics diagnostics;
  { const SweepFolder made(path, Use::kWhole, diagnostics); }
  const std::vector<std::string> stale{"cells/.a.json.partial-12", ".results.json.partial-3",
                                       "checkpoints/.b.kvcal-lock"};
  for (const std::string& name : stale) write_file(path / name, "x");
  write_file(path / "cells/kept.json", "{}");
  { const SweepFolder part(path, Use::kPart, diagnostics); }
  for (const std::string& name : stale) CHECK(is_there(path / name));
  { const SweepFolder whole(path, Use::kWhole, diagnostics); }
  for (const std::string& name : stale) CHECK_FALSE(is_there(path / name));
  CHECK(is_there(path / "cells/kept.json"));
}

TEST_CASE("sweep folder: files that can be made again are absent where they are unsound") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", Use::kWhole, diagnostics);
  const fs::path cell = folder.cell(kFingerprint);
  CHECK(cell == scratch / "out/cells/0123456789abcdef01234567.json");
  CHECK_FALSE(folder.result(kFingerprint));
  for (const char* text : {"{", "[1]", "{}", R"({"result": 3})"}) {
    write_file(cell, text);
    CHECK_FALSE(folder.result(kFingerprint));
  }
  folder.write(cell, {{"result", {{"kl_mean", 0.5}}}});  // without a hash
  CHECK_FALSE(folder.result(kFingerprint));
  folder.write_piece(cell, {{"result", {{"kl_mean", 0.5}}}});
  CHECK(folder.result(kFingerprint) == Json{{"kl_mean", 0.5}});
  write_file(folder.machine(), "{");
  CHECK_THROWS_AS(folder.read(folder.machine()), Error);
}

TEST_CASE("sweep folder: a cell that was edited, cut, or is another's has to be measured") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", Use::kWhole, diagnostics);
  const fs::path cell = folder.cell(kFingerprint);
  const Json content{{"id", "a/b"}, {"result", {{"kl_mean", 0.5}, {"perplexity", 7.25}}}};
  folder.write_piece(cell, content);
  CHECK(folder.read_piece(cell) == content);
  const std::string text = read_text(cell);
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 7)));
    INFO("byte " << at << " of " << text);
    write_file(cell, flipped);
    CHECK_FALSE(folder.result(kFingerprint));
    write_file(cell, text.substr(0, at));
    CHECK_FALSE(folder.result(kFingerprint));
  }
  std::string edited = text;
  edited.replace(edited.find("0.5"), 3, "0.4");
  write_file(cell, edited);
  CHECK_FALSE(folder.result(kFingerprint));
  write_file(cell, text);
  CHECK(folder.result(kFingerprint));
  const std::string other = "f" + std::string(kFingerprint).substr(1);
  fs::rename(cell, folder.cell(other));
  CHECK_FALSE(folder.result(other));
}

TEST_CASE("sweep folder: the same content is not written again") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", Use::kWhole, diagnostics);
  folder.write(folder.results(), {{"a", 1}});
  const auto time = fs::file_time_type{};
  fs::last_write_time(folder.results(), time);
  folder.write(folder.results(), {{"a", 1}});
  CHECK(fs::last_write_time(folder.results()) == time);
  folder.write(folder.results(), {{"a", 2}});
  CHECK(fs::last_write_time(folder.results()) != time);
}

TEST_CASE("sweep folder: a checkpoint goes with all it holds; one that is not there is fine") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", Use::kWhole, diagnostics);
  write_file(folder.checkpoint(kFingerprint) / "config.json", "{}");
  folder.remove_checkpoint(kFingerprint);
  folder.remove_checkpoint(kFingerprint);
  CHECK(paths_in(folder.path() / "checkpoints").empty());
}
