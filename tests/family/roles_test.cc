#include "family/roles.h"

#include <set>

#include "family/expected_tensors.h"
#include "support/catch.h"
#include "support/model_fixture.h"

namespace kvcal {
namespace {

ModelConfig config_of(const std::string& fixture) {
  return parse_model_config(parse_json(read_text(test::model_fixture(fixture) / "config.json")));
}

}  // namespace

TEST_CASE("roles: every role has a row in its place, and a name of its own") {
  std::set<std::string_view> names;
  for (size_t i = 0; i < role_rows().size(); ++i) {
    const RoleRow& row = role_rows()[i];
    CHECK(static_cast<size_t>(row.role) == i);
    CHECK(!row.group.empty());
    CHECK(names.insert(row.name).second);
  }
  CHECK(role_rows().back().role == Role::kLayerScalar);
}

TEST_CASE("roles: every tensor of a family's tables has a role with a row") {
  for (const Architecture& architecture : architectures())
    for (const auto* rows : {&architecture.model_tensors, &architecture.layer_tensors})
      for (const TensorRow& row : *rows) {
        CHECK(row_of(row.role).role == row.role);
        for (const SplitRow& part : row.split) CHECK(fused_roles_of(part.role).size() <= 1);
      }
}

TEST_CASE("roles: Linears that read one input name one role") {
  for (const Role role : {Role::kQuery, Role::kKey, Role::kValue, Role::kQueryKeyValue,
                          Role::kQueryAndGate, Role::kQueryDown, Role::kLatent})
    CHECK(input_of(role) == Role::kQuery);
  CHECK(input_of(Role::kGateUp) == Role::kUp);
  CHECK(input_of(Role::kExpertGateUp) == Role::kExpertUp);
  CHECK(input_of(Role::kSharedExpertGate) == Role::kRouter);
  CHECK(input_of(Role::kDown) == Role::kDown);
}

TEST_CASE("roles: a fused tensor's rows are those of the roles it holds, each row once") {
  for (const char* fixture : {"llama", "falcon_40b", "gpt_neox", "qwen3_next"}) {
    CAPTURE(fixture);
    const ModelConfig config = config_of(fixture);
    const int64_t layer = 0;
    for (const RoleRow& fused : role_rows()) {
      if (fused.holds.empty() || fused.role == Role::kMixerAll ||
          fused.role == Role::kIndexerQueryKey)
        continue;
      const bool is_qkv = fused.holds.size() == 3;
      const int64_t rows =
          is_qkv ? config.attention(layer).qkv_width() : 2 * config.attention(layer).query_width();
      std::set<int64_t> seen;
      int64_t count = 0;
      for (const Role role : fused.holds)
        for (const auto& [begin, length] : row_ranges(role, fused.role, rows, config, layer))
          for (int64_t i = begin; i < begin + length; ++i, ++count) seen.insert(i);
      CHECK(count == rows);
      CHECK(std::ssize(seen) == rows);
      CHECK(*seen.begin() == 0);
      CHECK(*seen.rbegin() == rows - 1);
    }
  }
  // Of a delta net: keys and queries of 2 heads of 6, values and gates of 4 heads of 8, two numbers
  // a head.
  const ModelConfig config = config_of("lara_mini");
  const std::vector<std::pair<int64_t, int64_t>> expected{{0, 12},  {12, 12}, {24, 32},
                                                          {56, 32}, {88, 4},  {92, 4}};
  const std::vector<Role>& held = row_of(Role::kMixerAll).holds;
  REQUIRE(held.size() == expected.size());
  for (size_t i = 0; i < held.size(); ++i) {
    const RowRanges ranges = row_ranges(held[i], Role::kMixerAll, 96, config, 0);
    REQUIRE(ranges.size() == 1);
    CHECK(std::pair(ranges[0].first, ranges[0].second) == expected[i]);
  }
  CHECK(fused_roles_of(Role::kQuery).size() == 2);
  CHECK(fused_roles_of(Role::kOutput).empty());
}

}  // namespace kvcal
