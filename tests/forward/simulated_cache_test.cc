#include <cmath>

#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;

namespace {

std::vector<LayerKvScales> scales_for(const ModelConfig& config, const CacheType& type) {
  if (!needs_scales(type)) return {};
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {.k = {Scale{0.02f}}, .v = {Scale{0.01f}}});
}

/// K and V of a layer after a step, as attention reads them, and the step's logits.
struct Cached {
  std::vector<float> k, v, logits;
};

Cached cached(ModelFixture& fixture, Decoder& decoder, const CacheType& type, int64_t layer) {
  const auto count = static_cast<int64_t>(fixture.ids.size());
  KvCache cache = decoder.make_cache(type, scales_for(fixture.config, type), count);
  Cached result{.k = {}, .v = {}, .logits = decoder.step(fixture.ids, cache)};
  const LayerCache& heads = fixture.config.cache(layer);
  const KvView storage = cache.storage(layer);
  REQUIRE(storage.dtype == KvDType::kFloat32);
  const auto copied = [&](const void* data, int64_t dim) {
    std::vector<float> values(static_cast<size_t>(count * heads.heads * dim));
    fixture.backend->copy_out(static_cast<const std::byte*>(data),
                              std::as_writable_bytes(std::span(values)));
    return values;
  };
  result.k = copied(storage.k, heads.k_dim);
  result.v = copied(storage.v, heads.v_dim);
  return result;
}

}  // namespace

TEST_CASE("a simulated cache holds what engines read of rotated K and of V") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const Cached exact = cached(fixture, decoder, KvDType::kFloat32, 0);
  const int64_t dim = fixture.config.cache(0).k_dim;
  REQUIRE(fixture.config.cache(0).v_dim == dim);
  int simulated = 0;
  for (const CacheFormat format : kCacheFormats) {
    CAPTURE(name_of(format));
    if (dim % layout_of(format).multiple != 0) {
      CHECK(contains(message_of([&] { cached(fixture, decoder, format, 0); }),
                     "cache needs a multiple of"));
      continue;
    }
    const Cached read = cached(fixture, decoder, format, 0);
    Cached expected = exact;
    for (size_t i = 0; i < expected.k.size(); i += static_cast<size_t>(dim)) {
      round_trip(format, &expected.k[i], dim, 0.02f);
      round_trip(format, &expected.v[i], dim, 0.01f);
    }
    CHECK(read.k == expected.k);
    CHECK(read.v == expected.v);
    CHECK(read.k != exact.k);
    CHECK(read.logits != exact.logits);
    ++simulated;
  }
  CHECK(simulated >= 4);
}

TEST_CASE("a simulated cache needs the scales of its format, and heads that engines can keep") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  CHECK(contains(message_of([&] { decoder.make_cache(CacheFormat::kInt8, {}, 4); }),
                 "an int8 cache needs scales for 2 layers, found 0"));
  ModelFixture latent("deepseek_v3");
  Decoder other(latent.config, latent.weights, *latent.backend, ComputeType::kFloat32);
  CHECK(contains(message_of([&] { other.make_cache(CacheFormat::kInt8PerTokenHead, {}, 4); }),
                 "a latent (MLA), for which engines have no int8_per_token_head cache"));
}

TEST_CASE("bytes a token of a simulated cache are the engine's, not those in memory") {
  ModelFixture fixture("llama");
  const ModelConfig& config = fixture.config;
  const LayerCache& heads = config.cache(0);
  const auto layers = static_cast<uint64_t>(config.num_hidden_layers);
  CHECK(KvCache::bytes_per_token(config, CacheFormat::kInt8PerTokenHead, {}) ==
        layers * static_cast<uint64_t>(heads.heads * (heads.k_dim + 4 + heads.v_dim + 4)));
  CHECK(KvCache::bytes_per_slot(config, CacheFormat::kInt8PerTokenHead, {}, 10) ==
        10 * layers * static_cast<uint64_t>(heads.width()) * 4);
}
