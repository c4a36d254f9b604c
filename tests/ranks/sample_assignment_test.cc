#include "ranks/ranked_forward.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;

namespace {

/// Lengths as those of chats: many short ones, few long ones, none over 2048.
std::vector<int64_t> chat_lengths(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(6.2, 0.9);
  std::vector<int64_t> lengths;
  while (lengths.size() < count)
    lengths.push_back(std::clamp(static_cast<int64_t>(length(random)), int64_t{8}, int64_t{2048}));
  return lengths;
}

/// The largest share of any rank, of an even one.
double most(const SampleAssignment& assignment, const std::function<double(size_t)>& of) {
  double all = 0.0, largest = 0.0;
  for (size_t i = 0; i < assignment.num_samples(); ++i) all += of(i);
  for (const auto& samples : assignment.samples_of) {
    double own = 0.0;
    for (const size_t sample : samples) own += of(sample);
    largest = std::max(largest, own);
  }
  return largest * static_cast<double>(assignment.samples_of.size()) / all;
}

}  // namespace

TEST_CASE("64 uneven chats give each rank the same tokens and work") {
  // What a token costs of an 8B model and of a small one, whose attention weighs more.
  const SampleWork works[] = {{.per_token = 1.4e10, .per_pair = 2.6e5},
                              {.per_token = 2.1e8, .per_pair = 3.5e4},
                              {.per_token = 1.0, .per_pair = 0.0}};
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const SampleWork& work : works)
      for (const int ranks : {2, 3, 4}) {
        const auto lengths = chat_lengths(64, seed);
        const SampleAssignment assignment = assign_samples(lengths, work, ranks);
        INFO("seed " << seed << ", " << ranks << " ranks, per pair " << work.per_pair);
        CHECK(most(assignment, [&](size_t i) { return static_cast<double>(lengths[i]); }) <= 1.05);
        CHECK(most(assignment, [&](size_t i) { return work.of(lengths[i]); }) <= 1.05);
      }
}

TEST_CASE("every sample has one rank, and each rank's are in order") {
  const auto lengths = chat_lengths(500, 7);
  for (const int ranks : {1, 2, 5, 16, 64}) {
    const SampleAssignment assignment = assign_samples(lengths, {}, ranks);
    REQUIRE(assignment.samples_of.size() == static_cast<size_t>(ranks));
    std::vector<size_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& samples = assignment.samples_of[static_cast<size_t>(rank)];
      CHECK(std::ranges::is_sorted(samples));
      for (const size_t sample : samples) {
        CHECK(assignment.rank_of[sample] == rank);
        all.push_back(sample);
      }
    }
    std::ranges::sort(all);
    std::vector<size_t> expected(lengths.size());
    std::iota(expected.begin(), expected.end(), size_t{0});
    CHECK(all == expected);
    CHECK(assign_samples(lengths, {}, ranks).rank_of == assignment.rank_of);
  }
}

TEST_CASE("with fewer samples than ranks some have none") {
  const std::vector<int64_t> lengths{5, 9, 1};
  const SampleAssignment assignment = assign_samples(lengths, {}, 8);
  for (const auto& samples : assignment.samples_of) CHECK(samples.size() <= 1);
  CHECK(assign_samples({}, {}, 2).samples_of.size() == 2);
}

TEST_CASE("a sample's work counts matrices, chosen experts and attention") {
  const test::ModelFixture llama("llama");
  const ModelConfig& config = llama.config;
  const SampleWork dense = sample_work(config, llama.weights);
  const int64_t matrices =
      config.num_hidden_layers *
      (config.hidden_size * (config.attention(0).query_width() + config.attention(0).qkv_width()) +
       3 * config.hidden_size * config.intermediate_size);
  CHECK(dense.per_token == 2.0 * static_cast<double>(matrices));
  CHECK(dense.per_pair ==
        static_cast<double>(2 * config.num_hidden_layers * config.attention(0).query_width()));

  const test::ModelFixture mixtral("mixtral");
  double all = 0.0;
  for (int64_t layer = 0; layer < mixtral.config.num_hidden_layers; ++layer)
    for (const auto& tensor : mixtral.weights.tensors(layer))
      if (tensor.view.shape.rank() >= 2)
        all += 2.0 * static_cast<double>(element_count(tensor.view.shape));
  const SampleWork routed = sample_work(mixtral.config, mixtral.weights);
  CHECK(routed.per_token < all);
  CHECK(routed.per_token > all / static_cast<double>(mixtral.config.moe.num_experts));
}
