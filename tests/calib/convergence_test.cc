#include "calib/scales/derive.h"

#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

std::vector<Amax> amaxes(const std::vector<float>& values) {
  std::vector<Amax> all;
  for (const float value : values) all.push_back({value});
  return all;
}

}  // namespace

TEST_CASE("convergence: the running amax and the interval that a drawn bootstrap finds") {
  const Json reference =
      parse_json(read_text(test::tests_folder() / "fixtures" / "calib" / "bootstrap.json"));
  REQUIRE(reference.at("cases").size() == 14);
  for (const Json& expected : reference.at("cases")) {
    const auto values = expected.at("values").get<std::vector<float>>();
    INFO(values.size() << " values");
    const AmaxConvergence found = convergence_of(amaxes(values));
    CHECK(found.num_samples == expected.at("num_samples").get<std::vector<int64_t>>());
    REQUIRE(found.running.size() == expected.at("running").size());
    for (size_t i = 0; i < found.running.size(); ++i)
      CHECK(found.running[i].value == expected.at("running")[i].get<float>());
    CHECK(found.low.value == expected.at("interval")[0].get<float>());
    CHECK(found.high.value == expected.at("interval")[1].get<float>());
  }
}

TEST_CASE("convergence: the interval asks how many samples come near the amax") {
  // (k / 4)^4 is at least 0.025 from k = 2 on.
  const AmaxConvergence found = convergence_of(amaxes({4.0f, 1.0f, 3.0f, 2.0f}));
  CHECK(found.low.value == 2.0f);
  CHECK(found.high.value == 4.0f);
  CHECK(found.num_samples == std::vector<int64_t>{1, 2, 4});
  // One outlier in a thousand: the draws that miss it, 37 of 100, see nothing like it.
  std::vector<float> values(1000, 1.0f);
  values[500] = 100.0f;
  const AmaxConvergence outlier = convergence_of(amaxes(values));
  CHECK(outlier.low.value == 1.0f);
  CHECK(outlier.high.value == 100.0f);
  CHECK(outlier.running.back().value == 100.0f);
  CHECK(outlier.running[8].value == 1.0f);  // of 256
}
