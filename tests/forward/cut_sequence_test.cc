#include <algorithm>

#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;

namespace {

/// The residual stream behind the sequence's tokens, run in two parts. The second one goes on in
/// another slot, which gets a copy.
std::vector<float> hidden_in_parts(Decoder& decoder, const test::ModelFixture& fixture,
                                   std::span<const TokenId> ids, size_t cut) {
  constexpr int64_t kSlots = 3;
  KvCache cache =
      decoder.make_cache(unquantized_cache_dtype(fixture.config), {}, std::ssize(ids), kSlots);
  std::vector<float> all;
  int64_t slot = 0;
  for (const std::span<const TokenId> part : {ids.first(cut), ids.subspan(cut)}) {
    if (part.empty()) continue;
    const Decoder::SequenceTokens tokens{
        .slot = slot, .ids = part, .whole_length = std::ssize(ids)};
    const Buffer hidden = decoder.step_hidden_together({&tokens, 1}, cache);
    const std::vector<float> rows = downloaded(*fixture.backend, hidden.as<float>(),
                                               std::ssize(part) * fixture.config.hidden_size);
    all.insert(all.end(), rows.begin(), rows.end());
    cache.copy(slot, 2);
    slot = 2;
  }
  return all;
}

/// The fixture's ids again and again, up to its longest sequence.
std::vector<TokenId> long_ids(const test::ModelFixture& fixture) {
  const ModelConfig& config = fixture.config;
  const int64_t most = std::min<int64_t>(config.max_position_embeddings, 200);
  const auto count =
      static_cast<size_t>(config.most_tokens > 0 ? std::min(most, config.most_tokens) : most);
  std::vector<TokenId> ids;
  while (ids.size() < count) ids.insert(ids.end(), fixture.ids.begin(), fixture.ids.end());
  ids.resize(count);
  return ids;
}

}  // namespace

TEST_CASE("cut sequence: what goes on in a copy has the bytes of what was never cut") {
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name);
    test::ModelFixture fixture(name, "cpu");
    const std::vector<TokenId> ids = long_ids(fixture);
    // Attention that selects keys reads a short first part whole.
    if (fixture.config.selects_keys(std::ssize(ids))) continue;
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, type);
      const std::vector<float> whole = hidden_in_parts(decoder, fixture, ids, 0);
      for (const size_t cut : {size_t{5}, ids.size() / 2, ids.size() - 3}) {
        INFO("cut behind " << cut << " of " << ids.size() << " tokens, " << name_of(type));
        CHECK(hidden_in_parts(decoder, fixture, ids, cut) == whole);
      }
    }
  }
}
