#include "inspect/checkpoint_source.h"

#include <stdlib.h>

#include "core/folder.h"
#include "inspect/inspection.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

fs::path fixture(const std::string& name) {
  return test::tests_folder() / "fixtures/models" / name;
}

}  // namespace

TEST_CASE("inspect: config.json alone gives the answers of the checkpoint") {
  for (const char* name :
       {"llama", "qwen3", "mixtral", "deepseek_v2", "gemma3_text", "nemotron_h"}) {
    INFO(name);
    const test::ScratchFolder folder;
    fs::copy(fixture(name) / "config.json", folder / "config.json");
    const InspectionResult whole(fixture(name).string());
    for (const fs::path& given : {folder.path(), folder / "config.json"}) {
      const InspectionResult found(given.string());
      CHECK(found.hollow != nullptr);
      CHECK(found.cache.values_per_token == whole.cache.values_per_token);
      CHECK(found.layers.size() == whole.layers.size());
      CHECK(consumers_json(found.consumers) == consumers_json(whole.consumers));
      const fs::path scratch = found.hollow->path();
      CHECK_FALSE(test::contains(dump_json(inspection_json(found, true)), scratch.string()));
    }
  }
}

TEST_CASE("inspect: two of a process lie in folders of their own, which go with them") {
  fs::path first_path;
  {
    const HollowCheckpoint first(fixture("llama") / "config.json", {});
    first_path = first.path();
    {
      const HollowCheckpoint second(fixture("qwen3") / "config.json", {});
      CHECK(second.path() != first.path());
      CHECK(is_there(second.path() / "model.safetensors"));
    }
    CHECK(is_there(first_path / "model.safetensors"));
  }
  CHECK_FALSE(is_there(first_path));
}

TEST_CASE("inspect: a model that is not supported says why, and leaves nothing behind") {
  const test::ScratchFolder folder, scratch;
  test::write_file(folder / "config.json", R"({"model_type": "unheard_of"})");
  ::setenv("TMPDIR", scratch.path().c_str(), 1);
  const std::string message = test::message_of([&] { InspectionResult(folder.path().string()); });
  InspectionResult((fixture("llama") / "config.json").string());
  ::unsetenv("TMPDIR");
  CHECK(test::contains(message, "config.json: "));
  CHECK(test::contains(message, "unheard_of"));
  CHECK(paths_in(scratch.path()).empty());
}

TEST_CASE("inspect: a folder with weights in another form is no config.json alone") {
  const test::ScratchFolder folder;
  fs::copy(fixture("llama") / "config.json", folder / "config.json");
  test::write_file(folder / "tokenizer.json", "{}");
  CHECK(lone_config(folder.path()) == folder / "config.json");
  test::write_file(folder / "pytorch_model.bin", "");
  CHECK(lone_config(folder.path()).empty());
}
