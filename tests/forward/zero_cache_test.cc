#include "forward/layer_observers.h"

#include <limits>

#include "checkpoint/safetensors.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using test::ModelFixture;

std::string message_of_pass(ModelFixture& fixture, bool in_one_pass) {
  const test::FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(), {},
                           silent);
  return test::message_of([&] {
    if (in_one_pass)
      forward.observe_and_advance_exact(0);
    else
      forward.observe(0);
  });
}

/// Copies a fixture into folder; the named tensors of layer 0 are zero there.
void copy_with_zeros(const std::string& fixture, const std::vector<std::string>& names,
                     const fs::path& folder) {
  const fs::path from = test::model_fixture(fixture);
  for (const char* file : {"config.json", "expected.json"})
    fs::copy_file(from / file, folder / file);
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<Tensor> tensors;
  size_t changed = 0;
  for (const TensorView& view : file.tensors()) {
    tensors.push_back({std::string(view.name), view.dtype, view.shape,
                       std::vector<std::byte>(view.bytes.begin(), view.bytes.end())});
    for (const std::string& name : names) {
      if (view.name != "model.layers.0." + name) continue;
      std::ranges::fill(tensors.back().bytes, std::byte{0});
      ++changed;
    }
  }
  REQUIRE(changed == names.size());
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(folder / "model.safetensors", std::move(sources), {});
}

}  // namespace

TEST_CASE("zero_cache: K of zeros from weights that are none is refused") {
  for (const bool in_one_pass : {false, true}) {
    ModelFixture sound("llama");
    CHECK(message_of_pass(sound, in_one_pass) == "no error");
    ModelFixture erased("llama");
    erased.config.norm_eps = std::numeric_limits<float>::infinity();
    CHECK(
        test::contains(message_of_pass(erased, in_one_pass), "K of layer 0 is zero in every head"));
    // The squares of such an embedding are infinite.
    ModelFixture large("llama");
    large.config.embedding_multiplier = 1e30f;
    CHECK(
        test::contains(message_of_pass(large, in_one_pass), "K of layer 0 is zero in every head"));
  }
}

TEST_CASE("zero_cache: K or V of zeros from weights of zeros is what it is") {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"self_attn.k_proj.weight"},
        {"self_attn.v_proj.weight"},
        {"self_attn.k_proj.weight", "self_attn.v_proj.weight"},
        {"input_layernorm.weight"}}) {
    const test::ScratchFolder folder;
    copy_with_zeros("llama", names, folder.path());
    ModelFixture fixture(folder.path());
    CHECK(message_of_pass(fixture, false) == "no error");
  }
}

TEST_CASE("zero_cache: one that is not zero is enough") {
  ModelFixture fixture("llama");
  const auto refusal = [&](std::vector<ObservedRange> ranges) {
    LayerObservation seen;
    seen.k.ranges = std::move(ranges);
    seen.v.ranges = {{-1.0f, 1.0f}};
    return test::message_of([&] { refuse_zero_cache(seen, fixture.config, fixture.weights, 0); });
  };
  CHECK(refusal({{0.0f, 0.0f}, {0.0f, 1e-30f}}) == "no error");
  CHECK(refusal({{0.0f, 0.0f}, {-1e-30f, 0.0f}}) == "no error");
  CHECK(refusal({{0.0f, 0.0f, 3}}) == "no error");  // reported as NaN or Inf
  CHECK(refusal({kEmptyRange, kEmptyRange}) == "no error");
  CHECK(test::contains(refusal({kEmptyRange, {0.0f, 0.0f}}), "K of layer 0"));
}

}  // namespace kvcal
