#include <iterator>
#include <optional>
#include <set>
#include <span>

#include "core/file.h"
#include "core/json.h"
#include "forward/decoder.h"
#include "forward/engine_cache.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "synth/synthetic.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;

namespace {

/// A random model of a fixture's family with the heads of a published one.
struct Model {
  Model(const std::string& fixture, const Json& changes) {
    Json config = parse_json(read_text(test::model_fixture(fixture) / "config.json"));
    config.update(changes);
    SilentDiagnostics silent;
    write_synthetic_checkpoint(config, {}, folder.path(), silent);
    dir.emplace(folder.path());
    this->config = read_model_config(*dir);
    weights.emplace(*dir, this->config);
    decoder.emplace(this->config, *weights, *backend, ComputeType::kFloat32);
  }

  test::ScratchFolder folder;
  std::unique_ptr<Backend> backend = test::make_backend("cpu");
  std::optional<ModelDir> dir;
  ModelConfig config;
  std::optional<Weights> weights;
  std::optional<Decoder> decoder;
};

Json heads_of(int64_t size) {
  return {{"head_dim", size}};
}
Json latent_of(int64_t rank, int64_t key) {
  return {{"kv_lora_rank", rank}, {"qk_rope_head_dim", key}};
}

std::vector<LayerKvScales> scales_for(const ModelConfig& config, const CacheType& type) {
  if (!needs_scales(type)) return {};
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {.k = {Scale{0.02f}}, .v = {Scale{0.01f}}});
}

/// K and V of a layer after a step, as attention reads them, and the step's logits.
struct Cached {
  std::vector<float> k, v, logits;
};

Cached cached(Model& model, const CacheType& type, int64_t layer) {
  const std::vector<TokenId> ids{3, 17, 42, 5, 99, 64, 8};
  const auto count = static_cast<int64_t>(ids.size());
  KvCache cache = model.decoder->make_cache(type, scales_for(model.config, type), count);
  Cached result{.k = {}, .v = {}, .logits = model.decoder->step(ids, cache)};
  const LayerCache& heads = model.config.cache(layer);
  const KvView storage = cache.storage(layer);
  REQUIRE(storage.dtype == KvDType::kFloat32);
  const auto copied = [&](const void* data, int64_t dim) {
    std::vector<float> values(static_cast<size_t>(count * heads.heads * dim));
    model.backend->copy_out(static_cast<const std::byte*>(data),
                            std::as_writable_bytes(std::span(values)));
    return values;
  };
  result.k = copied(storage.k, heads.k_dim);
  result.v = copied(storage.v, heads.v_dim);
  return result;
}

/// Heads of x, each after its way through the cache.
std::vector<float> read_back(CacheFormat format, std::vector<float> x, CachedHead head) {
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(head.size)) {
    head.x = &x[i];
    round_trip(format, head);
  }
  return x;
}

/// Compares layer 0 in every format that the model's heads allow. Returns these formats.
std::set<CacheFormat> check_formats(Model& model) {
  const Cached exact = cached(model, KvDType::kFloat32, 0);
  const CachedSizes sizes = cached_sizes(model.config, 0);
  std::set<CacheFormat> simulated;
  for (const CacheFormat format : kCacheFormats) {
    CAPTURE(name_of(format));
    if (const std::string problem = head_problem(format, model.config, 0); !problem.empty()) {
      CHECK(contains(message_of([&] { cached(model, format, 0); }), problem));
      continue;
    }
    const Cached read = cached(model, format, 0);
    CHECK(read.k ==
          read_back(format, exact.k, {.size = sizes.k, .scale = 0.02f, .rotated = sizes.rotated}));
    CHECK(read.v ==
          read_back(format, exact.v, {.size = sizes.v, .scale = 0.01f, .is_value = true}));
    CHECK(read.k != exact.k);
    CHECK(read.logits != exact.logits);
    simulated.insert(format);
  }
  return simulated;
}

std::string problem_of(CacheFormat format, const std::string& fixture, const Json& changes) {
  Json config = parse_json(read_text(test::model_fixture(fixture) / "config.json"));
  config.update(changes);
  return head_problem(format, parse_model_config(config), 0);
}

}  // namespace

TEST_CASE("a simulated cache holds what engines read of rotated K and of V, or of a latent") {
  Model heads("llama", heads_of(64)), latent("deepseek_v3", latent_of(512, 64));
  const std::set<CacheFormat> of_heads = check_formats(heads), of_latent = check_formats(latent);
  CHECK(of_latent == std::set{CacheFormat::kFp8DsMla, CacheFormat::kNvfp4DsMla});
  CHECK(of_heads.size() + of_latent.size() == std::size(kCacheFormats));
}

TEST_CASE("Octave's blocks that RoPE turns have more bits") {
  Model model("glm", heads_of(128));  // half of each head turns
  REQUIRE(cached_sizes(model.config, 0).rotated == 64);
  CHECK(check_formats(model).contains(CacheFormat::kOctaveK3V4));
}

TEST_CASE("a simulated cache needs the scales of its format, and heads that engines can keep") {
  Model model("llama", heads_of(64));
  CHECK(contains(message_of([&] { model.decoder->make_cache(CacheFormat::kInt8, {}, 4); }),
                 "an int8 cache needs scales for 2 layers, found 0"));
  CHECK(problem_of(CacheFormat::kInt8PerTokenHead, "deepseek_v3", Json::object()) ==
        "the model keeps a latent (MLA), for which engines have no int8_per_token_head cache");
  CHECK(problem_of(CacheFormat::kFp8DsMla, "deepseek_v3", Json::object()) ==
        "the model keeps a latent of 20 and a rotated key of 8, fp8_ds_mla caches have 512 and "
        "64");
  CHECK(problem_of(CacheFormat::kFp8DsMla, "llama", heads_of(64)) ==
        "fp8_ds_mla caches hold a latent (MLA), which the model does not keep");
  CHECK(problem_of(CacheFormat::kMxfp8, "llama", heads_of(48)) ==
        "layer 0 has heads of 48, mxfp8 caches need a multiple of 32");
  CHECK(problem_of(CacheFormat::kTurboquant3Bit, "llama", heads_of(96)) ==
        "layer 0 has heads of 96, turboquant_3bit_nc caches need a power of two of 16 or more, "
        "up to 512");
  CHECK(problem_of(CacheFormat::kOctaveK3V4, "glm", heads_of(64)) ==
        "layer 0 rotates 32 dimensions of K, octave_k3v4 caches need a multiple of 64");
}

TEST_CASE("engines leave the first and last two layers of TurboQuant and UltraQuant in 16 bits") {
  const auto layers = [](const std::string& fixture, int64_t count, CacheFormat format) {
    Json config = parse_json(read_text(test::model_fixture(fixture) / "config.json"));
    config["num_hidden_layers"] = count;
    return plain_layers(format, parse_model_config(config));
  };
  CHECK(layers("llama", 6, CacheFormat::kTurboquantK8V4) == std::vector<int64_t>{0, 1, 4, 5});
  CHECK(layers("llama", 6, CacheFormat::kUltraquant4Bit) == std::vector<int64_t>{0, 1, 4, 5});
  CHECK(layers("llama", 4, CacheFormat::kTurboquantK8V4).empty());  // would be all
  CHECK(layers("llama", 6, CacheFormat::kOctaveK3V4).empty());
  CHECK(layers("llama", 6, CacheFormat::kInt4PerTokenHead).empty());
  CHECK(layers("bamba", 6, CacheFormat::kTurboquantK8V4).empty());  // few layers have attention
}

TEST_CASE("bytes a token of a simulated cache are the engine's, not those in memory") {
  const ModelFixture fixture("llama");
  const ModelConfig& config = fixture.config;
  const LayerCache& heads = config.cache(0);
  const auto layers = static_cast<uint64_t>(config.num_hidden_layers);
  CHECK(KvCache::bytes_per_token(config, CacheFormat::kInt8PerTokenHead, {}) ==
        layers * static_cast<uint64_t>(heads.heads * (heads.k_dim + 4 + heads.v_dim + 4)));
  CHECK(KvCache::bytes_per_slot(config, CacheFormat::kInt8PerTokenHead, {}, 10) ==
        10 * layers * static_cast<uint64_t>(heads.width()) * 4);
}
