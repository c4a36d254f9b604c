#include "quant/provenance.h"

#include "calib/statistics/observed_statistics.h"
#include "support/catch.h"

using namespace kvcal;

TEST_CASE("provenance: the samples of a run replace those before, in the order of the run") {
  Provenance origin;
  origin.sample_indices = {9};
  const std::vector<Sample> samples{{.index = 3, .ids = {1, 2}}, {.index = 0, .ids = {5}}};
  set_samples(samples, origin);
  CHECK(origin.sample_indices == std::vector<int64_t>{3, 0});
  CHECK(origin.num_tokens == 3);
  set_samples({}, origin);
  CHECK(origin.sample_indices.empty());
  CHECK(origin.num_tokens == 0);
}
