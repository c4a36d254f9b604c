#include "stored/weights.h"

#include <cstring>

#include "checkpoint/safetensors.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

namespace kvcal {
namespace {

/// The upper halves of float32 values: their BF16, rounded towards zero.
std::vector<std::byte> upper_halves(const TensorView& tensor) {
  std::vector<std::byte> halves(tensor.bytes.size() / 2);
  for (size_t i = 0; i < halves.size() / 2; ++i)
    std::memcpy(halves.data() + 2 * i, tensor.bytes.data() + 4 * i + 2, 2);
  return halves;
}

/// Copies the fixture with the tensors that change touched.
template <class Change>
void copy_changed(const std::string& fixture, const fs::path& folder, const Change& change) {
  const fs::path from = test::model_fixture(fixture);
  fs::copy_file(from / "config.json", folder / "config.json");
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const TensorView& view : file.tensors()) {
    tensors.push_back({std::string(view.name), view.dtype, view.shape,
                       std::vector<std::byte>(view.bytes.begin(), view.bytes.end())});
    change(tensors.back());
  }
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(folder / "model.safetensors", std::move(sources), {});
}

void open(const fs::path& folder) {
  const ModelDir model_dir(folder);
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
}

}  // namespace

// Qwen3's FP8 checkpoints have them.
TEST_CASE("weights: block scales of FP8 weights may be BF16") {
  const test::ScratchFolder folder;
  copy_changed("deepseek_v3_fp8", folder.path(), [](Tensor& tensor) {
    if (!tensor.name.ends_with("_scale_inv")) return;
    tensor.bytes = upper_halves(tensor.view());
    tensor.dtype = DType::kBF16;
  });
  CHECK(test::message_of([&] { open(folder.path()); }) == "no error");
}

TEST_CASE("weights: embeddings are never FP8") {
  const test::ScratchFolder folder;
  copy_changed("deepseek_v3_fp8", folder.path(), [](Tensor& tensor) {
    if (tensor.name != "model.embed_tokens.weight") return;
    tensor.dtype = DType::kF8E4M3;
    tensor.bytes.resize(element_count(tensor.shape));
  });
  CHECK(test::contains(test::message_of([&] { open(folder.path()); }),
                       "unreadable: model.embed_tokens.weight is F8_E4M3"));
}

TEST_CASE("weights: buffers that older transformers saved are ignored in every family") {
  const test::ScratchFolder folder;
  copy_changed("qwen3", folder.path(), [](Tensor&) {});
  const SafetensorsFile file(folder / "model.safetensors");
  const float frequency = 1.0f;
  const Tensor buffer = make_f32_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", Shape{1},
                                        std::span(&frequency, 1));
  std::vector<TensorSource> sources{source_of(buffer)};
  for (const TensorView& view : file.tensors()) sources.push_back(source_of(file, view));
  const test::ScratchFolder with_buffer;
  fs::copy_file(folder / "config.json", with_buffer / "config.json");
  write_safetensors(with_buffer / "model.safetensors", std::move(sources), {});
  CHECK(test::message_of([&] { open(with_buffer.path()); }) == "no error");
}

}  // namespace kvcal
