// Weights quantized by name and shape alone, against llm-compressor's model_free_ptq
// (reference/model_free.py).
#include "export/packed_copy.h"

#include <map>

#include "core/hash.h"
#include "export/checkpoint_copy.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::ScratchFolder;

namespace {

const fs::path kFixtures = test::tests_folder() / "fixtures/model_free";

const Json& all_cases() {
  static const Json cases = parse_json(read_text(kFixtures / "cases.json"));
  return cases;
}

/// Tensor → "BF16 [2, 3] digest", as in cases.json.
std::map<std::string, Json> tensors_of(const fs::path& folder) {
  std::map<std::string, Json> tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    for (const TensorView& tensor : file.tensors()) {
      const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes.data()),
                                   tensor.bytes.size());
      tensors[std::string(tensor.name)] = {name_of(tensor.dtype), tensor.shape.dims,
                                           sha256_hex(bytes).substr(0, 16)};
    }
  }
  return tensors;
}

struct Written {
  Json config;
  std::map<std::string, Json> tensors;
};

Written quantized(const fs::path& source, const std::string& scheme_name,
                  const std::vector<std::string>& ignore = {}, int threads = 1) {
  const ScratchFolder scratch;
  const ModelDir model(source);
  const WeightScheme scheme = weight_scheme(scheme_name);
  const WeightsByName found = weights_by_name(model, ignore);
  check_fit(found, model, scheme.weights, scheme.name);
  ThreadPool pool(threads);
  SilentDiagnostics silent;
  write_packed_weights({model, found, scheme, pool, silent}, scratch.path());
  return {packed_config(scheme, found.ignore), tensors_of(scratch.path())};
}

/// What a config says beside the list of modules that stay: compressed-tensors 0.20 leaves out keys
/// that say nothing, which 0.19 writes.
Json said_by(Json config) {
  if (!config.is_object()) return config;
  for (const char* key : {"ignore", "version"}) config.erase(key);
  Json said = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (value.is_null() || (value.is_object() && value.empty())) continue;
    said[key] = said_by(value);
  }
  return said;
}

}  // namespace

TEST_CASE("packed_copy: every tensor has llm-compressor's name, dtype, shape and bytes") {
  size_t compared = 0;
  for (const auto& [name, expected] : all_cases().items()) {
    if (expected.contains("error")) continue;
    CAPTURE(name);
    const std::string source = expected.at("source"), scheme = expected.at("scheme");
    const Written written = quantized(kFixtures / "sources" / source, scheme);
    REQUIRE(written.tensors.size() == expected.at("tensors").size());
    for (const auto& [tensor, properties] : expected.at("tensors").items()) {
      CAPTURE(tensor);
      REQUIRE(written.tensors.contains(tensor));
      CHECK(written.tensors.at(tensor) == properties);
      ++compared;
    }
    Json config = written.config, wanted = expected.at("quantization_config");
    CHECK(said_by(config) == said_by(wanted));
  }
  CHECK(compared > 500);
}

TEST_CASE("packed_copy: what stays is listed, and named in ignore") {
  const ModelDir model(kFixtures / "sources/state_space_bf16");
  const WeightsByName found = weights_by_name(model, {"re:.*out_proj"});
  REQUIRE(found.quantized.size() == 1);
  CHECK(found.quantized[0].module == "backbone.layers.0.mixer.in_proj");
  std::map<std::string, std::string> kept;
  for (const CopiedWeight& one : found.kept) kept.emplace(one.name, one.reason);
  CHECK(kept == std::map<std::string, std::string>{
                    {"backbone.embeddings", "embedding"},
                    {"backbone.layers.0.mixer.conv1d", "3 dimensions"},
                    {"backbone.layers.0.mixer.out_proj", "--ignore 're:.*out_proj'"},
                    {"visual.blocks.0.attn.qkv", "tower"},
                    {"visual.patch_embed.proj", "tower"}});
  CHECK(found.ignore == std::vector<std::string>{"backbone.embeddings",
                                                 "backbone.layers.0.mixer.out_proj",
                                                 "visual.blocks.0.attn.qkv", "lm_head"});
}

TEST_CASE("packed_copy: experts that stay are split where others of their stack are quantized") {
  const fs::path source = kFixtures / "sources/experts_bf16";
  const std::string up = "model.layers.0.mlp.experts.1.up_proj";
  const Written written = quantized(source, "FP8_DYNAMIC", {up});
  CHECK(written.tensors.at(up + ".weight")[0] == "BF16");
  CHECK(written.tensors.at(up + ".weight")[1] == Json({128, 32}));
  CHECK_FALSE(written.tensors.contains("model.layers.0.mlp.experts.gate_up_proj"));
  const Written whole =
      quantized(source, "FP8_DYNAMIC", {"model.layers.0.mlp.experts.gate_up_proj"});
  CHECK(whole.tensors.contains("model.layers.0.mlp.experts.gate_up_proj"));
  CHECK(whole.tensors.contains("model.layers.0.mlp.experts.0.down_proj.weight_scale"));
}

TEST_CASE("packed_copy: bytes do not depend on the number of threads") {
  for (const char* scheme : {"FP8_BLOCK", "W3A16", "NVFP4A16", "W4A16_ASYM"}) {
    const fs::path source = kFixtures / "sources/llama_bf16";
    CHECK(quantized(source, scheme).tensors == quantized(source, scheme, {}, 5).tensors);
  }
}

TEST_CASE("packed_copy: stacks whose inputs come first are refused") {
  const ScratchFolder scratch;
  test::write_file(scratch / "config.json", "{}");
  const std::vector<float> values(2 * 8 * 8);
  const auto stack = [&](const std::string& name, Shape shape) {
    return make_f32_tensor(name, std::move(shape), std::span(values).first(element_count(shape)));
  };
  const std::vector<Tensor> tensors{stack("e.gate_up_proj", {2, 4, 8}),
                                    stack("e.down_proj", {2, 4, 4})};
  write_safetensors(scratch / "model.safetensors", sources_of(tensors), {{"format", "pt"}});
  const ModelDir model(scratch.path());
  try {
    weights_by_name(model, {});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(
        error.message().find(scratch.path().string() +
                             ": e.down_proj is [2, 4, 4] beside e.gate_up_proj [2, 4, 8], expected "
                             "[experts, 2 x inner, width]") == 0);
  }
}
