#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RoutingCase {
  std::string what;
  RouterRule rule;
  bool has_correction = false, has_scales = false;
  float spread = 1.0f;  ///< of the logits
};

std::vector<RoutingCase> routing_cases() {
  return {
      {"softmax", {.experts = 8, .per_token = 2}},
      {"softmax of 128, normalized", {.experts = 128, .per_token = 8, .normalizes = true}},
      {"normalized by the root of squares",
       {.experts = 16, .per_token = 4, .normalizes = true, .norm_order = 2.0f}},
      {"normalized by a norm of a half",
       {.experts = 8,
        .per_token = 3,
        .score = RouterScore::kSigmoid,
        .normalizes = true,
        .norm_order = 0.5f}},
      {"one expert of three, gated shared",
       {.experts = 3,
        .per_token = 1,
        .factor = 2.5f,
        .shared_multiplier = 0.5f,
        .shared_is_gated = true}},
      {"large logits", {.experts = 16, .per_token = 4, .normalizes = true}, false, false, 10.0f},
      {"capped", {.experts = 8, .per_token = 2, .softcap = 1.5f}, false, true, 3.0f},
      {"sigmoid, corrected groups",
       {.experts = 32,
        .per_token = 6,
        .score = RouterScore::kSigmoid,
        .group_score = GroupScore::kSumOfTwoLargest,
        .groups = 8,
        .groups_per_token = 3,
        .normalizes = true,
        .factor = 2.5f},
       true},
      {"the largest of groups",
       {.experts = 24,
        .per_token = 4,
        .group_score = GroupScore::kLargest,
        .groups = 4,
        .groups_per_token = 2,
        .factor = 16.0f}},
      {"all experts of a sigmoid",
       {.experts = 5, .per_token = 5, .score = RouterScore::kSigmoid},
       true,
       true},
      {"shared experts that are scored",
       {.experts = 12,
        .per_token = 3,
        .score = RouterScore::kSigmoid,
        .normalizes = true,
        .factor = 2.5f,
        .scored_shared = 2},
       true},
      {"a shared expert that is scored, not normalized",
       {.experts = 4, .per_token = 2, .score = RouterScore::kSigmoid, .scored_shared = 1}},
      {"sparse mixer",
       {.experts = 16, .per_token = 2, .score = RouterScore::kSparseMixer, .jitter = 0.01f}},
      {"sparse mixer with near rivals",
       {.experts = 16, .per_token = 2, .score = RouterScore::kSparseMixer, .jitter = 0.4f}},
  };
}

/// What route wrote.
struct Routed {
  std::vector<int32_t> tokens, counts, places;
  std::vector<float> weights, shared;
};

struct RoutingInput {
  const RoutingCase& c;
  int64_t rows = 0;
  std::vector<float> logits, correction, scales;

  int64_t stride() const { return c.rule.experts + 2; }
};

RoutingInput make_input(const RoutingCase& c, int64_t rows) {
  RoutingInput input{.c = c, .rows = rows, .logits = {}, .correction = {}, .scales = {}};
  input.logits = test::normal(rows * input.stride(), 7);
  for (float& logit : input.logits) logit *= c.spread;
  if (c.has_correction) input.correction = test::normal(c.rule.experts, 8);
  if (c.has_scales) input.scales = test::normal(c.rule.experts, 9);
  return input;
}

Routed run(Backend& backend, const RoutingInput& input) {
  const RouterRule& rule = input.c.rule;
  const auto floats = [&](int64_t count) {
    return test::OnBackend<float>(backend, std::vector<float>(static_cast<size_t>(count), 77.0f));
  };
  const auto integers = [&](int64_t count) {
    return test::OnBackend<int32_t>(backend, std::vector<int32_t>(static_cast<size_t>(count), 77));
  };
  const int64_t chosen = input.rows * rule.per_token;
  const test::OnBackend<float> logits(backend, input.logits), correction(backend, input.correction),
      scales(backend, input.scales);
  const auto scratch = floats(input.rows * rule.scratch_width()), chosen_weights = floats(chosen),
             weights = floats(chosen),
             shared = floats(input.rows * std::max<int64_t>(rule.scored_shared, 1));
  const auto choice = integers(chosen), tokens = integers(chosen),
             counts = integers(rule.experts + 1), places = integers(chosen);
  backend.route({.rule = rule,
                 .logits = logits.data(),
                 .correction = input.correction.empty() ? nullptr : correction.data(),
                 .expert_scales = input.scales.empty() ? nullptr : scales.data(),
                 .rows = input.rows,
                 .row_stride = input.stride(),
                 .scratch = scratch.data(),
                 .chosen = choice.data(),
                 .chosen_weights = chosen_weights.data(),
                 .tokens = tokens.data(),
                 .weights = weights.data(),
                 .places = places.data(),
                 .counts = counts.data(),
                 .shared_weights = shared.data()});
  return {.tokens = tokens.values(),
          .counts = counts.values(),
          .places = places.values(),
          .weights = weights.values(),
          .shared = shared.values()};
}

// ---- the judge: what the families' definitions say, in double, with sorted lists ----

struct Chosen {
  size_t expert = 0;
  double weight = 0.0;
};

std::vector<size_t> best_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

std::vector<double> judged_scores(const RouterRule& rule, std::vector<double> x) {
  double sum = 0.0;
  for (double& value : x) {
    if (rule.softcap > 0.0f) value = std::tanh(value / rule.softcap) * rule.softcap;
    value = rule.score == RouterScore::kSigmoid ? 1.0 / (1.0 + std::exp(-value)) : std::exp(value);
    sum += value;
  }
  if (rule.score == RouterScore::kSoftmax)
    for (double& value : x) value /= sum;
  return x;
}

void exclude_groups(const RouterRule& rule, std::vector<double>& ranks) {
  const auto size = static_cast<size_t>(rule.experts / rule.groups);
  std::vector<double> groups;
  for (size_t begin = 0; begin < ranks.size(); begin += size) {
    std::vector<double> group(ranks.begin() + static_cast<ptrdiff_t>(begin),
                              ranks.begin() + static_cast<ptrdiff_t>(begin + size));
    std::sort(group.rbegin(), group.rend());
    groups.push_back(group[0] + (rule.group_score == GroupScore::kLargest ? 0.0 : group[1]));
  }
  const std::vector<size_t> order = best_of(groups);
  for (size_t place = static_cast<size_t>(rule.groups_per_token); place < order.size(); ++place)
    for (size_t i = 0; i < size; ++i)
      ranks[order[place] * size + i] = -std::numeric_limits<double>::infinity();
}

std::vector<Chosen> judged_mixer(const RouterRule& rule, const std::vector<double>& x) {
  std::vector<Chosen> result;
  std::vector<bool> taken(x.size(), false);
  for (int turn = 0; turn < 2; ++turn) {
    size_t best = 0;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
    for (size_t i = 0; i < x.size(); ++i)
      if (!taken[i] && x[i] > largest) largest = x[best = i];
    for (size_t i = 0; i < x.size(); ++i)
      if (!taken[i] && (largest - x[i]) / std::max(std::fabs(x[i]), largest) <= 2.0 * rule.jitter)
        sum += std::exp(x[i] - largest);
    result.push_back({best, 1.0 / sum});
    taken[best] = true;
  }
  return result;
}

/// Scores of the shared experts whose logits stand behind the experts'.
std::vector<double> judged_shared(const RoutingInput& input, int64_t row) {
  const RouterRule& rule = input.c.rule;
  const float* logits = input.logits.data() + row * input.stride() + rule.experts;
  return judged_scores(rule, std::vector<double>(logits, logits + rule.scored_shared));
}

/// Norm of the scores of a row's chosen and shared experts.
double judged_norm(const RoutingInput& input, int64_t row, const std::vector<size_t>& chosen,
                   const std::vector<double>& scores) {
  const RouterRule& rule = input.c.rule;
  if (!rule.normalizes) return 1.0;
  double sum = 0.0;
  for (const size_t expert : chosen) sum += std::pow(scores[expert], rule.norm_order);
  for (const double score : judged_shared(input, row)) sum += score;
  return std::pow(sum, 1.0 / rule.norm_order);
}

/// The chosen experts of a row; norm: by which their weights were divided.
std::vector<Chosen> judged_choice(const RoutingInput& input, int64_t row, double& norm) {
  const RouterRule& rule = input.c.rule;
  const float* logits = input.logits.data() + row * input.stride();
  const std::vector<double> x(logits, logits + rule.experts);
  std::vector<Chosen> result;
  if (rule.score == RouterScore::kSparseMixer) {
    result = judged_mixer(rule, x);
  } else {
    const std::vector<double> scores = judged_scores(rule, x);
    std::vector<double> ranks = scores;
    for (size_t i = 0; i < input.correction.size(); ++i) ranks[i] += input.correction[i];
    if (rule.group_score != GroupScore::kNone) exclude_groups(rule, ranks);
    std::vector<size_t> order = best_of(ranks);
    order.resize(static_cast<size_t>(rule.per_token));
    norm = judged_norm(input, row, order, scores);
    for (const size_t expert : order)
      result.push_back({expert, scores[expert] / norm * rule.factor});
  }
  if (!input.scales.empty())
    for (Chosen& one : result) one.weight *= input.scales[one.expert];
  return result;
}

void check_against_judge(const Routed& routed, const RoutingInput& input) {
  const RouterRule& rule = input.c.rule;
  std::vector<std::vector<std::pair<int32_t, double>>> experts(static_cast<size_t>(rule.experts));
  std::vector<double> norms(static_cast<size_t>(input.rows), 1.0);
  for (int64_t row = 0; row < input.rows; ++row)
    for (const Chosen& one : judged_choice(input, row, norms[static_cast<size_t>(row)]))
      experts[one.expert].push_back({static_cast<int32_t>(row), one.weight});
  size_t at = 0;
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    REQUIRE(routed.counts[expert] == std::ssize(experts[expert]));
    for (const auto& [token, weight] : experts[expert]) {
      REQUIRE(routed.tokens[at] == token);
      CHECK(std::fabs(routed.weights[at] - weight) <= 2e-6 * std::fabs(weight) + 1e-37);
      ++at;
    }
  }
  CHECK(routed.counts.back() == 0);
  for (size_t i = 0; i < routed.places.size(); ++i) {
    const auto each = static_cast<size_t>(rule.per_token);
    REQUIRE(routed.tokens[static_cast<size_t>(routed.places[i])] == static_cast<int32_t>(i / each));
    if (i % each > 0) CHECK(routed.places[i - 1] < routed.places[i]);
  }
  for (int64_t row = 0; row < input.rows && rule.scored_shared > 0; ++row) {
    const std::vector<double> scores = judged_shared(input, row);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double expected = scores[i] / norms[static_cast<size_t>(row)] * rule.factor;
      const size_t place = i * static_cast<size_t>(input.rows) + static_cast<size_t>(row);
      CHECK(std::fabs(routed.shared[place] - expected) <= 2e-6 * expected);
    }
  }
  for (int64_t row = 0; row < input.rows && rule.scored_shared == 0; ++row) {
    const double gate = input.logits[static_cast<size_t>((row + 1) * input.stride() - 1)];
    const double share = rule.shared_is_gated ? 1.0 / (1.0 + std::exp(-gate)) : 1.0;
    const double expected = rule.shared_multiplier * share;
    CHECK(std::fabs(routed.shared[static_cast<size_t>(row)] - expected) <= 1e-6 * expected);
  }
}

void check_same(const Routed& actual, const Routed& expected) {
  CHECK(actual.counts == expected.counts);
  CHECK(actual.tokens == expected.tokens);
  CHECK(actual.places == expected.places);
  CHECK(test::same_bytes(actual.weights, expected.weights));
  CHECK(test::same_bytes(actual.shared, expected.shared));
}

TEST_CASE("route: the families' choice, bit for bit the same on every backend") {
  const auto reference = test::make_backend("reference");
  for (const RoutingCase& c : routing_cases())
    for (const int64_t rows : {0, 1, 37, 600}) {
      INFO(c.what << ", " << rows << " rows");
      const RoutingInput input = make_input(c, rows);
      const Routed expected = run(*reference, input);
      check_against_judge(expected, input);
      test::for_each_backend([&](Backend& backend) { check_same(run(backend, input), expected); });
    }
}

TEST_CASE("route: of experts, and of groups, with equal scores the first comes first") {
  const RoutingCase plain{"equal", {.experts = 6, .per_token = 3}};
  const RoutingCase grouped{"equal groups",
                            {.experts = 6,
                             .per_token = 2,
                             .group_score = GroupScore::kSumOfTwoLargest,
                             .groups = 3,
                             .groups_per_token = 1}};
  test::for_every_backend([&](Backend& backend) {
    RoutingInput input = make_input(plain, 2);
    input.logits.assign(input.logits.size(), 0.5f);
    CHECK(run(backend, input).counts == std::vector<int32_t>{2, 2, 2, 0, 0, 0, 0});
    input.logits[4] = 1.0f;  // of the first token
    CHECK(run(backend, input).counts == std::vector<int32_t>{2, 2, 1, 0, 1, 0, 0});
    RoutingInput groups = make_input(grouped, 2);
    groups.logits.assign(groups.logits.size(), -0.5f);
    CHECK(run(backend, groups).counts == std::vector<int32_t>{2, 2, 0, 0, 0, 0, 0});
  });
}

TEST_CASE("route: the first row with a logit that is not finite is marked, the others routed") {
  const RoutingCase c{"not finite", {.experts = 5, .per_token = 2}};
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")})
    test::for_every_backend([&](Backend& backend) {
      RoutingInput input = make_input(c, 300);
      const Routed all = run(backend, input);
      for (const int64_t row : {299, 41, 260})
        input.logits[static_cast<size_t>(row * input.stride() + 3)] = bad;
      input.logits[static_cast<size_t>(input.stride() - 1)] = bad;  // of no expert
      const Routed routed = run(backend, input);
      CHECK(routed.counts.back() == 300 - 41);
      const int32_t tokens = std::accumulate(routed.counts.begin(), routed.counts.end() - 1, 0);
      CHECK(tokens == 2 * 297);
      CHECK(std::find(routed.tokens.begin(), routed.tokens.begin() + tokens, 41) ==
            routed.tokens.begin() + tokens);
      CHECK(std::accumulate(all.counts.begin(), all.counts.end(), 0) == 2 * 300);
    });
}

TEST_CASE("route: a correction that is not a number is the last to be chosen") {
  const RoutingCase c{"corrected", {.experts = 4, .per_token = 3}, true};
  test::for_every_backend([&](Backend& backend) {
    RoutingInput input = make_input(c, 9);
    input.correction[1] = std::nanf("");
    CHECK(run(backend, input).counts == std::vector<int32_t>{9, 0, 9, 9, 0});
    input.correction.assign(4, std::nanf(""));
    CHECK(run(backend, input).counts == std::vector<int32_t>{9, 9, 9, 0, 0});
  });
}

}  // namespace
}  // namespace kvcal
