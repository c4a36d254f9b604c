// Names of the text model's tensors in multimodal checkpoints, as published and as transformers
// holds them in memory.
#include "checkpoint/safetensors.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// Copies a fixture of one file with other names, and the changes of a merge patch in config.json.
template <class Rename>
void copy_renamed(const std::string& fixture, const fs::path& folder, const Rename& rename,
                  const Json& patch = Json::object()) {
  const fs::path from = test::model_fixture(fixture);
  Json config = parse_json(read_text(from / "config.json"));
  config.merge_patch(patch);
  test::write_file(folder / "config.json", config.dump());
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const TensorView& view : file.tensors())
    tensors.push_back({rename(std::string(view.name)), view.dtype, view.shape,
                       std::vector<std::byte>(view.bytes.begin(), view.bytes.end())});
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(folder / "model.safetensors", std::move(sources), {});
}

/// "no error", or why the checkpoint does not open.
std::string opened(const fs::path& folder) {
  return test::message_of([&] {
    const ModelDir model_dir(folder);
    const ModelConfig config = read_model_config(model_dir);
    const Weights weights(model_dir, config);
  });
}

const auto kSameName = [](std::string name) { return name; };

/// Whether transformers also renames tensors below the backbone: a fixture of its own has them.
bool is_saved_under_other_names(const ModelConfig& config) {
  return std::ranges::any_of(config.architecture->layer_tensors, [](const TensorRow& row) {
    return std::ranges::any_of(row.conditions, [](const Condition& condition) {
      return condition.model == &ModelConfig::has_saved_names;
    });
  });
}

/// A fixture's name in transformers' memory: its backbone below "model.language_model." or
/// "model.text_model.", lm_head at the top, all else below "model.".
std::string name_in_memory(const std::string& name, const ModelConfig& config) {
  const auto without = [&](const std::string& prefix) { return name.substr(prefix.size()); };
  const std::string& backbone = config.backbone_prefix;
  if (backbone == "model.language_model." || backbone == "model.text_model.") return name;
  if (name.starts_with(config.head_prefix + "lm_head.")) return without(config.head_prefix);
  if (is_outside_text(name, config)) return name.starts_with("model.") ? name : "model." + name;
  if (name.starts_with(config.backbone_prefix))
    return "model.language_model." + without(config.backbone_prefix);
  return name;
}

}  // namespace

TEST_CASE("wrappers: tensors may have the names that transformers holds in memory") {
  size_t renamed = 0;
  for (const std::string& fixture : test::model_fixture_names()) {
    const ModelDir published(test::model_fixture(fixture));
    const ModelConfig config = read_model_config(published);
    if (config.wrapper_type.empty() || is_saved_under_other_names(config)) continue;
    INFO(fixture);
    const test::ScratchFolder folder;
    copy_renamed(fixture, folder.path(),
                 [&](const std::string& name) { return name_in_memory(name, config); });
    CHECK(opened(folder.path()) == "no error");
    const ModelConfig in_memory = read_model_config(ModelDir(folder.path()));
    CHECK(in_memory.backbone_prefix.starts_with("model."));
    CHECK(in_memory.backbone_prefix != "model.");
    CHECK(in_memory.head_prefix.empty());
    CHECK(in_memory.tie_word_embeddings == config.tie_word_embeddings);
    renamed += in_memory.backbone_prefix != config.backbone_prefix ? 1 : 0;
  }
  CHECK(renamed >= 5);
}

TEST_CASE("wrappers: a type that is not known runs where each tensor has its place") {
  const Json other = {{"model_type", "newvl"}};
  const test::ScratchFolder folder;
  copy_renamed("mistral3", folder.path(), kSameName, other);
  CHECK(opened(folder.path()) == "no error");

  const test::ScratchFolder more;
  copy_renamed(
      "mistral3", more.path(),
      [](const std::string& name) {
        return name == "multi_modal_projector.linear_1.weight"
                   ? std::string("language_model.model.adapter.weight")
                   : name;
      },
      other);
  CHECK(test::contains(opened(more.path()), "unexpected: language_model.model.adapter.weight"));

  const test::ScratchFolder elsewhere;
  copy_renamed(
      "mistral3", elsewhere.path(), [](const std::string& name) { return "inner." + name; }, other);
  CHECK(test::contains(opened(elsewhere.path()),
                       "model_type 'newvl' is not known, and its text model, a mistral, is at none "
                       "of the usual places; expected one of\n  "
                       "language_model.model.embed_tokens.weight"));
}

TEST_CASE("wrappers: a known type has no other parts than its own") {
  const test::ScratchFolder folder;
  copy_renamed("mistral3", folder.path(), [](const std::string& name) {
    return name == "multi_modal_projector.linear_1.weight" ? std::string("adapter.weight") : name;
  });
  CHECK(test::contains(opened(folder.path()), "unexpected: adapter.weight"));
}

TEST_CASE("wrappers: where config.json does not say, the file says whether lm_head is tied") {
  for (const bool is_tied : {false, true}) {
    const test::ScratchFolder folder;
    copy_renamed(
        "internvl", folder.path(),
        [&](const std::string& name) {
          return is_tied && name == "language_model.lm_head.weight"
                     ? std::string("vision_tower.other.weight")
                     : name;
        },
        {{"tie_word_embeddings", nullptr}, {"text_config", {{"tie_word_embeddings", nullptr}}}});
    CHECK(opened(folder.path()) == "no error");
    CHECK(read_model_config(ModelDir(folder.path())).tie_word_embeddings == is_tied);
  }
}

TEST_CASE("wrappers: text models that do not run are refused by name") {
  const auto error_of = [](const Json& config) {
    return test::message_of([&] { text_model_of(config); });
  };
  CHECK(test::contains(error_of({{"model_type", "idefics"}}), "cross-attention"));
  CHECK(test::contains(error_of({{"model_type", "inkling2"}}), "dynamic convolutions"));
  CHECK(test::contains(
      error_of({{"model_type", "llava"}, {"text_config", {{"model_type", "mamba"}}}}),
      "text_config of model_type 'llava': model_type 'mamba' is not supported: it has no "
      "attention"));
  CHECK(test::contains(
      error_of({{"model_type", "newvl"}, {"text_config", {{"model_type", "newlm"}}}}),
      "text_config of model_type 'newvl': model_type 'newlm' is not supported"));
  CHECK(test::contains(error_of({{"model_type", "newvl"}}), "model_type 'newvl' is not supported"));
}

}  // namespace kvcal
