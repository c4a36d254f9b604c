#include <hwy/targets.h>

#include <algorithm>

#include "forward/decoder.h"
#include "stored/kv_scales.h"
#include "support/backends.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/near.h"

using namespace kvcal;

namespace {

/// The residual stream behind a text: all of it but the last two tokens together, then these one by
/// one, as in decoding.
std::vector<float> hidden_of(const test::ModelFixture& fixture, std::span<const TokenId> ids,
                             KvDType dtype) {
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(
      dtype, is_fp8(dtype) ? unit_scales(fixture.config) : std::vector<LayerKvScales>(),
      std::ssize(ids));
  std::vector<float> all;
  const size_t together = ids.size() - 2;
  for (const auto& [first, count] :
       {std::pair<size_t, size_t>{0, together}, {together, 1}, {together + 1, 1}}) {
    const Buffer hidden = decoder.step_hidden(ids.subspan(first, count), cache, std::ssize(ids));
    const std::vector<float> rows =
        downloaded(*fixture.backend, hidden.as<float>(),
                   static_cast<int64_t>(count) * fixture.config.hidden_size);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace

TEST_CASE("same bytes: float32 gives those of every set of instructions that fuses") {
  const std::vector<int64_t> targets = test::fusing_targets();
  if (targets.size() < 2) WARN("this processor has one such set, and nothing is compared");
  for (const std::string& name : test::model_fixture_names())
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      std::vector<float> expected;
      for (const int64_t target : targets) {
        INFO(name << " with " << name_of(dtype) << ", " << hwy::TargetName(target));
        const test::OnlyTargets only(target);
        test::ModelFixture fixture(name, "cpu", 1);
        const std::vector<float> hidden = hidden_of(fixture, fixture.ids, dtype);
        if (expected.empty()) expected = hidden;
        CHECK(test::same_bytes(hidden, expected));
      }
    }
}
