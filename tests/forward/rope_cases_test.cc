// What a config.json says of RoPE more than once, or for nobody: as transformers reads it, or
// refused.
#include <cmath>

#include "forward/token_batch.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

struct Case {
  std::string fixture, label;
  /// ropes: [frequencies, factor] each; null where transformers fails.
  Json config, ropes;
};

/// Made by reference/make_rope_cases.py.
std::vector<Case> read_cases() {
  const Json file =
      parse_json(read_text(test::tests_folder() / "fixtures" / "family" / "rope_cases.json"));
  std::vector<Case> cases;
  for (const Json& entry : file.at("cases")) {
    Case& one = cases.emplace_back(Case{entry.at("fixture"), entry.at("case"), {}, {}});
    one.config = parse_json(read_text(test::model_fixture(one.fixture) / "config.json"),
                            {.has_python_constants = true});
    for (const char* key :
         {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
      one.config.erase(key);
    one.config.update(file.at("keys").at(one.label));
    one.ropes = entry.at("ropes");
  }
  return cases;
}

bool is_same(const RopeFrequencies& own, const Json& expected) {
  const Json& inverse = expected.at(0);
  if (own.inverse.size() != inverse.size()) return false;
  for (size_t i = 0; i < own.inverse.size(); ++i)
    if (test::relative_error(own.inverse[i], inverse[i].get<double>()) > 1e-5) return false;
  return test::relative_error(own.attention_factor, expected.at(1).get<double>()) < 1e-5;
}

/// Those that layers use, one for each way to turn.
bool are_same(const ModelConfig& config, const Json& expected) {
  for (const LayerConfig& layer : config.layers) {
    if (!layer.has_attention || layer.rope == kNoRope) continue;
    const RopeConfig& rope = config.ropes[static_cast<size_t>(layer.rope)];
    if (rope.rotary_dim == 0) continue;  // queries grow, only
    const RopeFrequencies own = rope_frequencies(rope, 1);
    if (std::ranges::none_of(expected, [&](const Json& one) { return is_same(own, one); }))
      return false;
  }
  return true;
}

/// Cases in which nothing contradicts anything else.
constexpr std::array<std::string_view, 8> kSound{"both say the same",       "both, one empty",
                                                 "theta beside and inside", "a share of linear",
                                                 "a share of one",          "yarn",
                                                 "yarn, its factor said",   "yarn, both mscales"};

bool is_sound(std::string_view label) {
  return std::ranges::find(kSound, label) != kSound.end();
}

/// Whether the change does not fit the fixture: a share turns an odd number of its dimensions, or
/// not those that another of its keys counts. Cohere 2 MoE has no scaled positions.
bool is_unfit(const Case& one, const std::string& message) {
  return test::contains(message, "expected an even number of them") ||
         test::contains(message, "expected the same in both") ||
         (one.fixture == "cohere2_moe" && test::contains(message, "which is not supported"));
}

}  // namespace

TEST_CASE("rope_cases: RoPE keys are read as transformers reads them, or refused") {
  size_t compared = 0, refused = 0;
  for (const Case& one : read_cases()) {
    INFO(one.fixture << ": " << one.label);
    ModelConfig config;
    try {
      config = parse_model_config(one.config);
    } catch (const Error& error) {
      ++refused;
      INFO(error.what());
      CHECK((one.ropes.is_null() || !is_sound(one.label) || is_unfit(one, error.what())));
      continue;
    }
    if (one.ropes.is_null()) continue;  // transformers 5.23 has no code for it
    ++compared;
    CHECK(are_same(config, one.ropes));
  }
  CHECK(compared > 300);
  CHECK(refused > 300);
}

TEST_CASE("rope_cases: what agrees is taken, and what does not is named") {
  std::map<std::string, std::string> messages;
  for (const Case& one : read_cases())
    if (one.fixture == "llama")
      messages[one.label] = test::message_of([&] { parse_model_config(one.config); });
  for (const std::string_view sound : kSound) {
    INFO(sound);
    CHECK(messages.at(std::string(sound)) == "no error");
  }
  for (const char* both : {"both, another type", "both, another factor", "both, another theta"})
    CHECK(messages.at(both) ==
          "keys 'rope_scaling' and 'rope_parameters' differ in what they say; expected one of "
          "them, or the same in both");
  for (const char* share : {"a share beside", "a share inside"})
    CHECK(test::contains(messages.at(share), "key 'partial_rotary_factor' is 0.5, which llama"));
  CHECK(test::contains(messages.at("yarn, its factor 0"), "key 'attention_factor' is 0"));
}

}  // namespace kvcal
