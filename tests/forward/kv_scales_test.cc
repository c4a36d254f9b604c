#include "stored/kv_scales.h"

#include <cstring>

#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

namespace {

/// A checkpoint of scales alone, one F32 each, value 1/32, 2/32, ...
void write_checkpoint(const fs::path& folder, const Json& config,
                      const std::vector<std::string>& scales) {
  Json header = Json::object();
  std::string bytes;
  for (const std::string& name : scales) {
    const float value = static_cast<float>(bytes.size() / 4 + 1) / 32;
    header[name] = {
        {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {bytes.size(), bytes.size() + 4}}};
    bytes.append(reinterpret_cast<const char*>(&value), 4);
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  write_file(folder / "model.safetensors", file + text + bytes);
  write_file(folder / "config.json", config.dump());
}

Json ignoring(const char* fixture, const Json& ignore) {
  Json config = parse_json(read_text(test::model_fixture(fixture) / "config.json"));
  if (!ignore.is_null()) config["quantization_config"] = {{"ignore", ignore}};
  return config;
}

struct Checkpoint {
  Checkpoint(const Json& json, const std::vector<std::string>& scales)
      : model_dir((write_checkpoint(folder.path(), json, scales), folder.path())),
        config(parse_model_config(model_dir.config())) {}
  auto scales() const { return read_checkpoint_scales(model_dir, config); }

  ScratchFolder folder;
  ModelDir model_dir;
  ModelConfig config;
};

const std::vector<std::string> kSecondOnly{"model.layers.1.self_attn.k_scale",
                                           "model.layers.1.self_attn.v_scale"};

}  // namespace

TEST_CASE("a layer that the checkpoint names as ignored needs no scales") {
  const Checkpoint checkpoint(ignoring("llama", {"lm_head", "model.layers.0.self_attn"}),
                              kSecondOnly);
  const auto scales = checkpoint.scales();
  REQUIRE(scales);
  REQUIRE(scales->size() == 2);
  CHECK(scales->at(0).ignored);
  CHECK(scales->at(0).k.empty());
  CHECK(!scales->at(1).ignored);
  CHECK(scales->at(1).k.at(0).value == 1.0f / 32);
  CHECK(scales->at(1).v.at(0).value == 2.0f / 32);
}

TEST_CASE("scales win over a list that ignores their layer") {
  const Checkpoint checkpoint(
      ignoring("llama", {"model.layers.1.self_attn"}),
      {"model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.v_scale",
       "model.layers.1.self_attn.k_scale", "model.layers.1.self_attn.v_scale"});
  const auto scales = checkpoint.scales();
  REQUIRE(scales);
  CHECK(!scales->at(1).ignored);
}

TEST_CASE("a layer without scales that nothing ignores is refused by name") {
  for (const Json& ignore :
       {Json(), Json("model.layers.0.self_attn"), Json({"model.layers.0"}), Json({7, "lm_head"})}) {
    INFO(ignore.dump());
    const Checkpoint checkpoint(ignoring("llama", ignore), kSecondOnly);
    const std::string message = message_of([&] { checkpoint.scales(); });
    CHECK(contains(
        message,
        "1 of 2 layers have KV scales; model.layers.0.self_attn has none, and "
        "quantization_config does not leave it out (ignore, or kv_cache_quantized_layers)"));
  }
}

TEST_CASE("a checkpoint that ignores every layer has no scales") {
  const Checkpoint checkpoint(
      ignoring("llama", {"model.layers.0.self_attn", "model.layers.1.self_attn"}),
      {"lm_head.input_scale"});
  CHECK(!checkpoint.scales());
}

TEST_CASE("layers of a hybrid that do not attend are neither missing nor ignored") {
  const Checkpoint checkpoint(ignoring("jamba", Json()), {"model.layers.1.self_attn.k_scale",
                                                          "model.layers.1.self_attn.v_scale"});
  const auto scales = checkpoint.scales();
  REQUIRE(scales);
  REQUIRE(scales->size() == 3);
  for (size_t layer = 0; layer < 3; ++layer) {
    INFO("layer " << layer);
    CHECK(scales->at(layer).k.size() == (layer == 1 ? 1u : 0u));
    CHECK(!scales->at(layer).ignored);
  }
}

TEST_CASE("scales are read in every form that engines read") {
  const auto config = ignoring("llama", Json());
  using Names = std::vector<std::string>;
  for (const Names& ends :
       {Names{".k_scale", ".v_scale"}, Names{".k_proj.k_scale", ".v_proj.v_scale"},
        Names{".qkv_proj.k_scale", ".qkv_proj.v_scale"},
        Names{".k_proj.output_scale", ".v_proj.output_scale"}, Names{".kv_scale"}}) {
    INFO(ends[0]);
    Names names;
    for (const char* module : {"model.layers.0.self_attn", "model.layers.1.self_attn"})
      for (const std::string& end : ends) names.push_back(module + end);
    const Checkpoint checkpoint(config, names);
    const auto scales = checkpoint.scales();
    REQUIRE(scales);
    const auto at = [&](size_t i) { return static_cast<float>(i + 1) / 32; };
    CHECK(scales->at(0).k.at(0).value == at(0));
    CHECK(scales->at(0).v.at(0).value == at(ends.size() - 1));
    CHECK(scales->at(1).v.at(0).value == at(names.size() - 1));
    for (const std::string& name : names) CHECK(kv_scale_names(checkpoint.config).contains(name));
  }
}

TEST_CASE("queries' scales are read in two forms") {
  for (const std::string middle : {".", "_proj.output_"}) {
    INFO(middle);
    const std::string module = "model.layers.0.self_attn.";
    const auto name = [&](const char* side) {
      return middle == "." ? module + side + "_scale" : module + side + middle + "scale";
    };
    const Checkpoint checkpoint(ignoring("llama", {"model.layers.1.self_attn"}),
                                {name("k"), name("v"), name("q")});
    const auto scales = checkpoint.scales();
    REQUIRE(scales);
    REQUIRE(scales->at(0).q.size() == 1);
    CHECK(scales->at(0).q[0].value == 3.0f / 32);
  }
}

TEST_CASE("scales of one layer in two places must be the same") {
  const Checkpoint checkpoint(
      ignoring("llama", {"model.layers.1.self_attn"}),
      {"model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.v_scale",
       "model.layers.0.self_attn.k_proj.k_scale", "model.layers.0.self_attn.v_proj.v_scale"});
  CHECK(contains(message_of([&] { checkpoint.scales(); }),
                 "model.layers.0.self_attn.k_scale and model.layers.0.self_attn.k_proj.k_scale "
                 "hold different scales of the same K"));
}

TEST_CASE("only attention modules of the model have scales") {
  const Json json = parse_json(read_text(test::model_fixture("jamba") / "config.json"));
  const auto names = kv_scale_names(parse_model_config(json));
  CHECK(names.contains("model.layers.1.self_attn.k_scale"));
  CHECK(names.contains("model.layers.1.self_attn.k_zero_point"));
  CHECK(!names.contains("model.layers.0.self_attn.k_scale"));  // a Mamba mixer
  CHECK(!names.contains("model.layers.17.self_attn.k_scale"));
  CHECK(!names.contains("lm_head.k_scale"));
}

TEST_CASE("an ignored layer's cache is as the model's dtype, the others are FP8") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const KvDType plain = unquantized_cache_dtype(fixture.config);
  REQUIRE(plain == KvDType::kFloat16);
  const LayerKvScales coarse{.k = {Scale{0.3f}}, .v = {Scale{0.3f}}};
  const LayerKvScales ignored{.k = {}, .v = {}, .ignored = true};
  const auto logits = [&](KvDType dtype, const std::vector<LayerKvScales>& scales) {
    KvCache cache = decoder.make_cache(dtype, scales, 64);
    // In two steps, so that what the first one stored is read from where it lies.
    const std::span ids(fixture.ids);
    decoder.step(ids.first(5), cache);
    return decoder.step(ids.subspan(5), cache);
  };
  const auto unquantized = logits(plain, {});
  CHECK(logits(KvDType::kFp8E4m3, {ignored, ignored}) == unquantized);
  const auto first = logits(KvDType::kFp8E4m3, {ignored, coarse});
  const auto second = logits(KvDType::kFp8E4m3, {coarse, ignored});
  const auto neither = logits(KvDType::kFp8E4m3, {coarse, coarse});
  CHECK(first != unquantized);
  CHECK(second != unquantized);
  CHECK(first != neither);
  CHECK(second != neither);
  KvCache cache = decoder.make_cache(KvDType::kFp8E4m3, {ignored, coarse}, 4);
  CHECK(cache.type() == KvDType::kFp8E4m3);
  CHECK(cache.storage(0).dtype == KvDType::kFloat16);
  CHECK(cache.storage(1).dtype == KvDType::kFp8E4m3);
}

TEST_CASE("an FP8 cache still needs scales of every layer that is not ignored") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const LayerKvScales ignored{.k = {}, .v = {}, .ignored = true};
  CHECK(contains(message_of([&] {
                   decoder.make_cache(KvDType::kFp8E4m3, {ignored, {}}, 4);
                 }),
                 "layer 1 has 0 values of k_scale"));
}
