// Fixtures of others, in another form than ours: a folder of folders with config.json,
// model*.safetensors, tokens.json, logits.npy and expected.json. CMake runs this where
// KVCAL_MORE_FIXTURES names such a folder.
#include <cstdlib>
#include <cstring>

#include "forward/support/family_check.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// float32 values of a .npy file in C order.
std::vector<float> read_npy(const fs::path& path) {
  const std::string bytes = read_text(path);
  REQUIRE(bytes.size() > 10);
  REQUIRE(bytes.substr(1, 5) == "NUMPY");
  const size_t header =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  REQUIRE(bytes.substr(10, header).find("'<f4'") != std::string::npos);
  std::vector<float> values((bytes.size() - 10 - header) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 10 + header, values.size() * sizeof(float));
  return values;
}

void check_folder(const fs::path& folder) {
  const std::vector<float> logits = read_npy(folder / "logits.npy");
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    test::ModelFixture fixture(folder, backend);
    fixture.ids =
        parse_json(read_text(folder / "tokens.json")).at("ids").get<std::vector<TokenId>>();
    CHECK(test::distance(test::all_logits(fixture, ComputeType::kFloat32), logits) <=
          test::kFloat32Tolerance);
    test::Extremes extremes(fixture, ComputeType::kFloat32);
    extremes.check_kv(fixture.expected.at("layers"), test::kFloat32Tolerance);
    extremes.check_linear_inputs(fixture.expected.at("linear_input_amax"));
    Json experts = Json::object(), all_shown = Json::object();
    const Json seen_by_experts = fixture.expected.value("moe_experts", Json::object());
    for (const auto& [name, seen] : seen_by_experts.items()) {
      if (seen.at("n_routed") > 0) experts[name] = seen.at("routed_tokens");
      all_shown[name] = seen.at("all_tokens");
    }
    if (!experts.empty()) extremes.check_linear_inputs(experts);
    if (!all_shown.empty())
      test::Extremes(fixture, ComputeType::kFloat32, true).check_linear_inputs(all_shown);
    if (!fixture.backend->supports(ComputeType::kBFloat16)) continue;
    // These tokens were not chosen for it: where two experts are nearly tied, rounding takes the
    // other one and the token's logits are another model's. Nine of ten must stay close all the
    // same.
    const std::vector<double> distances =
        test::token_distances(test::all_logits(fixture, ComputeType::kBFloat16), logits,
                              static_cast<size_t>(fixture.config.vocab_size));
    CHECK(distances[distances.size() * 9 / 10] <= 1.5 * test::kBFloat16Tolerance);
    CHECK(distances[distances.size() / 2] <= test::kBFloat16Tolerance);
  }
}

}  // namespace

TEST_CASE("further fixtures agree with transformers", "[.][more_fixtures]") {
  const char* root = std::getenv("KVCAL_MORE_FIXTURES");
  REQUIRE(root);
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "logits.npy")) continue;
    INFO(entry.path().filename().string());
    check_folder(entry.path());
    ++count;
  }
  CHECK(count > 0);
}
