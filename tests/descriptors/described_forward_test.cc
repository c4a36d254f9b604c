// Made-up models that a file describes, against transformers: a fixture's checkpoint with other
// names of tensors and keys is another model with the same logits.
#include "checkpoint/safetensors.h"
#include "descriptors/family_file.h"
#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

namespace kvcal {
namespace {

using Renames = std::vector<std::pair<std::string, std::string>>;

std::string replaced(std::string text, const Renames& renames) {
  for (const auto& [from, to] : renames)
    if (const size_t at = text.find(from); at != std::string::npos)
      text.replace(at, from.size(), to);
  return text;
}

/// The fixture in another folder, with other names.
void write_variation(const std::string& fixture, const fs::path& folder, const Renames& tensors,
                     const Renames& keys) {
  const fs::path from = test::model_fixture(fixture);
  fs::create_directory(folder);
  const Json config = parse_json(read_text(from / "config.json"));
  Json renamed = Json::object();
  for (const auto& [key, value] : config.items()) renamed[replaced(key, keys)] = value;
  renamed["model_type"] = "brandnew";
  test::write_file(folder / "config.json", dump_json(renamed));
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<TensorSource> sources;
  for (const TensorView& tensor : file.tensors()) {
    TensorSource source = source_of(file, tensor);
    source.name = replaced(std::string(tensor.name), tensors);
    sources.push_back(std::move(source));
  }
  write_safetensors(folder / "model.safetensors", std::move(sources), {{"format", "pt"}});
  for (const char* name : {"expected.json", "expected.safetensors"})
    fs::copy_file(from / name, folder / name);
}

/// Largest difference of all logits, relative to the largest that transformers computed.
double logits_distance(const fs::path& folder, const std::string& backend,
                       const FamilyChoice& family) {
  test::ModelFixture model(folder, backend, 2, family);
  Decoder decoder(model.config, model.weights, *model.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, std::ssize(model.ids));
  const std::vector<float> logits = test::step_all(decoder, model.ids, cache);
  const std::vector<float> expected = test::read_expected_logits(folder);
  REQUIRE(logits.size() == expected.size());
  double largest = 0.0, worst = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(expected[i])));
    worst = std::max(worst, static_cast<double>(std::fabs(expected[i] - logits[i])));
  }
  return worst / largest;
}

void check_as_transformers(const fs::path& folder, const FamilyFile& file) {
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    CHECK(logits_distance(folder, backend, file.choice()) <= 1e-4);
  }
}

}  // namespace

TEST_CASE("described family: Qwen3 with other names of tensors and keys") {
  const test::ScratchFolder scratch;
  const fs::path folder = scratch / "model";
  write_variation("qwen3", folder,
                  {{"model.", "decoder."},
                   {"layers.", "blocks."},
                   {"self_attn.q_proj", "attn.wq"},
                   {"self_attn.", "attn."},
                   {"lm_head", "unembed"}},
                  {{"hidden_size", "d_model"}, {"num_hidden_layers", "n_blocks"}});
  check_as_transformers(folder, FamilyFile(R"(name: blocks
like: qwen3
model_types: [brandnew]
attention_class: BlockAttention
aliases:
  - {key: hidden_size, alias: d_model}
  - {key: num_hidden_layers, alias: n_blocks}
prefixes:
  - {backbone: decoder.}
layers_name: blocks.
attention_module: attn
rename_tensors: {self_attn.: attn., self_attn.q_proj: attn.wq, lm_head: unembed}
)",
                                           "f"));
}

TEST_CASE("described family: Qwen3 without norms of Q and K, with another prefix, is Llama") {
  const test::ScratchFolder scratch;
  const fs::path folder = scratch / "model";
  write_variation("llama", folder, {{"model.", "backbone."}}, {});
  check_as_transformers(folder, FamilyFile(R"(name: unnormed
like: qwen3
drop_tensors: [query_norm, key_norm]
known_keys: [mlp_bias]
defaults: {}
prefixes: [{backbone: backbone.}]
)",
                                           "f"));
}

TEST_CASE("described family: a wrong file is not run") {
  const test::ScratchFolder scratch;
  const fs::path folder = scratch / "model";
  write_variation("qwen3", folder, {{"model.", "backbone."}}, {});
  const FamilyFile file(
      "name: unnormed\nlike: qwen3\ndrop_tensors: [query_norm, key_norm]\n"
      "prefixes: [{backbone: backbone.}]\n",
      "f");
  const std::string message =
      test::message_of([&] { logits_distance(folder, "cpu", file.choice()); });
  CHECK(test::contains(message, "unexpected: backbone.layers.0.self_attn.k_norm.weight"));
}

}  // namespace kvcal
