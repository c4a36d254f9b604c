// The cards of written outputs, by the calls that write them.
#include "run/command_output.h"

#include "core/file.h"
#include "export/model_card.h"
#include "run/convert_checkpoint.h"
#include "run/quantize_checkpoint.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::ScratchFolder;

namespace {

constexpr const char* kCommit = "0123456789012345678901234567890123456789";

std::string card_in(const fs::path& folder) {
  return read_text(folder / "README.md");
}

Json manifest_in(const fs::path& folder) {
  return parse_json(read_text(folder / "kvcal_manifest.json"));
}

/// A snapshot in a hub cache of a fixture.
fs::path cached(const fs::path& root, const std::string& repository, const std::string& fixture) {
  fs::path snapshot = root / repository / "snapshots" / kCommit;
  fs::create_directories(snapshot.parent_path());
  fs::copy(test::tests_folder() / "fixtures" / fixture, snapshot, fs::copy_options::recursive);
  return snapshot;
}

}  // namespace

TEST_CASE("output card: a source of the hub's cache goes by its id, in card and manifest") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  for (const auto& [repository, id] :
       {std::pair("models--owner--name", "owner/name"), std::pair("models--name", "name")}) {
    const fs::path source = cached(scratch.path(), repository, "model_free/sources/llama_f16");
    const fs::path out = scratch / id / "out";
    quantize_checkpoint({.checkpoint = source.string(),
                         .scheme = "W4A16",
                         .output = out.string(),
                         .version = "test"},
                        silent);
    const std::string named = std::string(id) + "@" + kCommit;
    CHECK(manifest_in(out).at("model").at("path") == named);
    const std::string card = card_in(out);
    CHECK(card.starts_with("---\nbase_model: " + std::string(id) +
                           "\nbase_model_relation: quantized\n"));
    CHECK(test::contains(card, "- source: `" + named + "`\n"));
    CHECK(test::contains(card, "# name, weights in W4A16\n"));
    CHECK_FALSE(test::contains(card, scratch.path().string()));
  }
}

TEST_CASE("output card: every checkpoint of a conversion has one, with its engines") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const fs::path source = cached(scratch.path(), "models--owner--name", "models/llama");
  test::write_file(source / "kv_cache_scales.json",
                   R"({"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn",
                       "scaling_factor": {"0": {"0": 0.5, "1": 0.25}}}})");
  ConversionRequest request;
  request.checkpoint = source.string();
  request.scales = (source / "kv_cache_scales.json").string();
  request.output.formats = {"compressed-tensors", "scales-json"};
  request.output.output = (scratch / "out").string();
  request.version = "test";
  convert_checkpoint(request, silent);
  const std::string card = card_in(scratch / "out/compressed-tensors");
  CHECK(test::contains(card, ": `vllm serve .`\n"));
  CHECK(test::contains(card, "<details><summary>Scales of every layer</summary>"));
  CHECK_FALSE(test::contains(card, scratch.path().string()));
  CHECK_FALSE(fs::exists(scratch / "out/scales-json/README.md"));
  CHECK_FALSE(test::contains(dump_json(manifest_in(scratch / "out")), scratch.path().string()));
}

TEST_CASE("output card: measurements go into the cards that are there") {
  const ScratchFolder scratch;
  test::write_file(scratch / "a/README.md", card_text({}, {}));
  add_accuracy(
      {{.format = "fp8", .path = scratch / "a"}, {.format = "scales-json", .path = scratch / "b"}},
      {{"KL", "1"}});
  CHECK(test::contains(card_in(scratch / "a"), "## Accuracy\n\n- KL: 1\n\n## Facts\n"));
  CHECK_FALSE(fs::exists(scratch / "b"));
}
