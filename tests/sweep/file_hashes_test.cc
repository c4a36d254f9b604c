#include "sweep/sweep_inputs.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

TEST_CASE("file hashes: a file is hashed again only where it changed") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", SweepFolder::Use::kWhole, diagnostics);
  const fs::path file = scratch / "a";
  write_file(file, "x");
  int computed = 0;
  const auto hash = [&](const std::string& kind) {
    return FileHashes(folder).hash(kind, file, {file}, [&] { return std::to_string(++computed); });
  };
  CHECK(hash("model") == "1");
  CHECK(hash("model") == "1");
  CHECK(hash("files") == "2");  // a hash of another kind
  write_file(file, "xy");
  CHECK(hash("model") == "3");
  write_file(folder.hashes(), "{");
  CHECK(hash("model") == "4");
  std::string edited = read_text(folder.hashes());
  edited.replace(edited.find("\"4\""), 3, "\"5\"");
  write_file(folder.hashes(), edited);
  CHECK(hash("model") == "5");
  CHECK(computed == 5);
}

TEST_CASE("file hashes: names and contents count; a folder that is only looked at is not written") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder looked(scratch / "none", SweepFolder::Use::kLook, diagnostics);
  for (const char* name : {"a", "b"}) write_file(scratch / name, "x");
  FileHashes hashes(looked);
  const std::string a = hashes.hash("f", scratch.path(), {scratch / "a"});
  CHECK(a != hashes.hash("g", scratch.path(), {scratch / "b"}));
  CHECK(a == hashes.hash("h", scratch.path(), {scratch / "a"}));
  CHECK_FALSE(fs::exists(scratch / "none"));
  CHECK_THROWS_AS(hashes.hash("f", scratch.path(), {scratch / "lost"}), Error);
}
