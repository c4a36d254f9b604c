#include "run/calibration_run.h"

#include "checkpoint/safetensors.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// A copy of a fixture, opened, in which one byte of a tensor may be another.
struct Copy {
  explicit Copy(const std::string& fixture, const std::string& tensor = {}, size_t byte = 0) {
    const fs::path from = test::model_fixture(fixture);
    for (const char* file : {"config.json", "expected.json"})
      fs::copy_file(from / file, folder / file);
    std::string bytes = read_text(from / "model.safetensors");
    if (!tensor.empty()) {
      const SafetensorsFile file(from / "model.safetensors");
      const TensorView* view = file.find(tensor);
      REQUIRE(view);
      char& changed = bytes[file.offset_of(*view) + byte];
      changed = static_cast<char>(changed ^ 1);
    }
    write_file_atomically(folder / "model.safetensors", bytes, false);
    model.emplace(folder.path());
  }

  uint64_t of_model(std::vector<TokenId> ids) {
    const std::vector<Sample> samples{{.index = 0, .ids = std::move(ids)}};
    RunHashes hashes(model->weights);
    hashes.begin(samples);
    return hashes.of_model();
  }

  test::ScratchFolder folder;
  std::optional<test::ModelFixture> model;
};

}  // namespace

TEST_CASE("run_hashes: a changed value of a layer shows in that layer's hash, packed or not") {
  Copy sound("llama");
  Copy changed("llama", "model.layers.1.mlp.down_proj.weight", 2001);
  RunHashes then(sound.model->weights), now(changed.model->weights);
  CHECK(then.stored(0) == now.stored(0));
  CHECK(then.stored(1) != now.stored(1));
  CHECK(then.stored(0) != then.stored(1));
  for (RunHashes* one : {&then, &now})
    for (const int64_t layer : {0, 1}) {
      RunHashes packed(one == &then ? sound.model->weights : changed.model->weights);
      packed.local()->bring(layer);
      packed.local()->drop(layer);
      CHECK(packed.packed(layer) == one->stored(layer));
    }
}

TEST_CASE("run_hashes: outside of layers counts what a pass reads") {
  Copy sound("llama");
  const size_t row = sound.model->weights.at(Role::kEmbedding).bytes.size() /
                     static_cast<size_t>(sound.model->config.vocab_size);
  Copy changed("llama", "model.embed_tokens.weight", 7 * row + 3);
  CHECK(sound.of_model({1, 2, 3}) == changed.of_model({1, 2, 3}));
  CHECK(sound.of_model({1, 7}) != changed.of_model({1, 7}));
  CHECK(sound.of_model({1, 7}) != sound.of_model({1, 2}));
  Copy normed("llama", "model.norm.weight", 0);
  CHECK(sound.of_model({1}) != normed.of_model({1}));
  Copy head("llama", "lm_head.weight", 0);
  CHECK(sound.of_model({1}) == head.of_model({1}));
}

}  // namespace kvcal
