#include <cmath>

#include "support/backends.h"
#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

using Floats = test::OnBackend<float>;

TEST_CASE("mix_streams: every backend agrees with the reference") {
  struct Case {
    int64_t streams, inputs, rows, width;
  };
  const auto reference = test::make_backend("reference");
  for (const Case& c : {Case{4, 4, 5, 64}, Case{3, 3, 2, 37}, Case{4, 1, 7, 1030}, Case{1, 2, 3, 1},
                        Case{2, 2, 0, 8}}) {
    const auto run = [&](Backend& backend) {
      const Floats x(backend, test::normal(c.streams * c.rows * c.width, 1)),
          added(backend, test::normal(c.inputs * c.rows * c.width, 2)),
          coefficients(backend, test::normal(c.rows * c.streams * c.inputs, 3)),
          out(backend, test::normal(c.streams * c.rows * c.width, 4));
      backend.mix_streams({.x = x.data(),
                           .added = added.data(),
                           .coefficients = coefficients.data(),
                           .streams = c.streams,
                           .inputs = c.inputs,
                           .rows = c.rows,
                           .width = c.width,
                           .out = out.data()});
      return out.values();
    };
    const auto expected = run(*reference);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.streams << " streams, " << c.inputs << " inputs, width " << c.width);
      CHECK(test::largest_error(run(backend), expected) <= 1e-5);
    });
  }
}

TEST_CASE("mix_streams: adds each input times the coefficient of its token") {
  test::for_every_backend([&](Backend& backend) {
    const Floats x(backend, {1, 2, 3, 4}), added(backend, {10, 20, 30, 40});
    // Two streams, two inputs, two tokens of width 1.
    const Floats coefficients(backend, {1, 0, 0.5f, 2, 0, 0, 1, 1}), out(backend, {0, 0, 0, 0});
    backend.mix_streams({.x = x.data(),
                         .added = added.data(),
                         .coefficients = coefficients.data(),
                         .streams = 2,
                         .inputs = 2,
                         .rows = 2,
                         .width = 1,
                         .out = out.data()});
    CHECK(out.values() == std::vector<float>{11, 2, 68, 64});
  });
}

TEST_CASE("mix_streams: without streams of its own, the sum of the inputs") {
  test::for_every_backend([&](Backend& backend) {
    const Floats added(backend, {10, 20, 30, 40}), coefficients(backend, {1, 0, 0.5f, 2});
    const Floats out(backend, {5, 5});
    backend.mix_streams({.added = added.data(),
                         .coefficients = coefficients.data(),
                         .streams = 1,
                         .inputs = 2,
                         .rows = 2,
                         .width = 1,
                         .out = out.data()});
    CHECK(out.values() == std::vector<float>{10, 90});
  });
}

TEST_CASE("connect_streams: every backend agrees with the reference") {
  struct Case {
    int64_t streams, rows, iterations;
  };
  const auto reference = test::make_backend("reference");
  for (const Case& c :
       {Case{4, 5, 20}, Case{3, 300, 1}, Case{1, 2, 2}, Case{2, 0, 3}, Case{64, 2, 4}}) {
    const auto run = [&](Backend& backend) {
      const int64_t width = (2 + c.streams) * c.streams;
      const Floats x(backend, test::normal(c.rows * width, 1, 3.0f)),
          base(backend, test::normal(width, 2)), scale(backend, test::normal(3, 3)),
          collapse(backend, test::normal(c.rows * c.streams, 4)),
          expand(backend, test::normal(c.rows * (width - c.streams), 5));
      backend.connect_streams({.x = x.data(),
                               .scale = scale.data(),
                               .base = base.data(),
                               .rows = c.rows,
                               .streams = c.streams,
                               .iterations = c.iterations,
                               .epsilon = 1e-6f,
                               .collapse = collapse.data(),
                               .expand = expand.data()});
      std::vector<float> all = collapse.values();
      const std::vector<float> expands = expand.values();
      all.insert(all.end(), expands.begin(), expands.end());
      return all;
    };
    const auto expected = run(*reference);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.streams << " streams, " << c.iterations << " iterations");
      CHECK(test::largest_error(run(backend), expected) <= 2e-5);
    });
  }
}

std::vector<float> attended(Backend& backend, const std::vector<float>& x,
                            const std::vector<float>& weight, int64_t streams, bool in_place) {
  const auto width = std::ssize(weight);
  const int64_t rows = std::ssize(x) / (streams * width);
  const Floats sums(backend, x), weights(backend, weight),
      apart(backend, std::vector<float>(static_cast<size_t>(rows * width)));
  const Floats& out = in_place ? sums : apart;
  backend.attend_streams({.x = sums.data(),
                          .weight = weights.data(),
                          .epsilon = 1e-6f,
                          .streams = streams,
                          .rows = rows,
                          .width = width,
                          .out = out.data()});
  std::vector<float> values = out.values();
  values.resize(static_cast<size_t>(rows * width));
  return values;
}

TEST_CASE("attend_streams: every backend agrees with the reference, in place, too") {
  struct Case {
    int64_t streams, rows, width;
  };
  const auto reference = test::make_backend("reference");
  for (const Case& c : {Case{4, 5, 64}, Case{3, 2, 37}, Case{64, 3, 1030}, Case{1, 3, 1},
                        Case{2, 0, 8}, Case{9, 300, 16}}) {
    const auto x = test::normal(c.streams * c.rows * c.width, 1, 2.0f);
    const auto weight = test::normal(c.width, 2, 0.3f);
    const auto expected = attended(*reference, x, weight, c.streams, false);
    test::for_every_backend([&](Backend& backend) {
      INFO(c.streams << " streams, width " << c.width);
      for (const bool in_place : {false, true})
        CHECK(test::largest_error(attended(backend, x, weight, c.streams, in_place), expected) <=
              2e-5);
    });
  }
}

TEST_CASE("attend_streams: the weights are a softmax of the normed streams' scores") {
  test::for_every_backend([&](Backend& backend) {
    // Of two streams of width 1 the norms are the signs: scores of ln 3 / 2 and -ln 3 / 2.
    const auto out = attended(backend, {5, -2}, {std::log(3.0f) / 2.0f}, 2, false);
    CHECK(std::fabs(out[0] - (0.75f * 5 - 0.25f * 2)) <= 1e-5f);
    CHECK(attended(backend, {5}, {100.0f}, 1, false) == std::vector<float>{5});
    CHECK(std::isnan(attended(backend, {5, NAN}, {1.0f}, 2, false)[0]));
  });
}

TEST_CASE("gate_by_keys: every backend agrees with the reference") {
  struct Case {
    int64_t streams, rows, width;
    float scale;
  };
  const auto reference = test::make_backend("reference");
  for (const Case& c : {Case{4, 5, 64, 0.125f}, Case{3, 2, 37, 1.0f}, Case{1, 1, 1, 1e-8f},
                        Case{4, 3, 2052, 0.02f}, Case{2, 0, 8, 1.0f}}) {
    const auto run = [&](Backend& backend) {
      const int64_t count = c.rows * c.streams * c.width;
      const Floats key(backend, test::normal(count, 1)), stream(backend, test::normal(count, 2)),
          value(backend, test::normal(c.rows * c.width, 3)), out(backend, test::normal(count, 4));
      backend.gate_by_keys({.key = key.data(),
                            .stream = stream.data(),
                            .value = value.data(),
                            .scale = c.scale,
                            .floor = 1e-6f,
                            .rows = c.rows,
                            .streams = c.streams,
                            .width = c.width,
                            .out = out.data()});
      return out.values();
    };
    const auto expected = run(*reference);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.streams << " streams, width " << c.width);
      CHECK(test::largest_error(run(backend), expected) <= 1e-5);
    });
  }
}

TEST_CASE("gate_by_keys: the gate is a sigmoid of the root, with the sign of the product") {
  test::for_every_backend([&](Backend& backend) {
    // One token, three streams of width 2: products 8, -2 and 0.
    const Floats key(backend, {1, 1, 1, 0, 0, 0}), stream(backend, {3, 5, -2, 7, 1, 1});
    const Floats value(backend, {1, -2}), out(backend, {0, 0, 0, 0, 0, 0});
    backend.gate_by_keys({.key = key.data(),
                          .stream = stream.data(),
                          .value = value.data(),
                          .scale = 0.5f,
                          .floor = 1e-6f,
                          .rows = 1,
                          .streams = 3,
                          .width = 2,
                          .out = out.data()});
    const float up = 1.0f / (1.0f + std::exp(-2.0f)), down = 1.0f / (1.0f + std::exp(1.0f));
    const std::vector<float> expected{up, -2 * up, down, -2 * down, 0.5f, -1.0f};
    CHECK(test::largest_error(out.values(), expected) <= 1e-6);
  });
}

TEST_CASE("match_magnitude: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {1, 37, 64, 2048, 4100}) {
    const auto run = [&](Backend& backend, float size) {
      auto values = test::normal(3 * width, 1);
      for (float& value : values) value *= size;
      const Floats x(backend, values), target(backend, test::normal(3 * width, 2));
      backend.match_magnitude(
          {.target = target.data(), .x = x.data(), .floor = 1e-5f, .rows = 3, .width = width});
      return x.values();
    };
    for (const float size : {1.0f, 1e-4f, 0.0f}) {  // below the floor, too
      const auto expected = run(*reference, size);
      test::for_each_backend([&](Backend& backend) {
        INFO("width " << width << ", size " << size);
        CHECK(test::largest_error(run(backend, size), expected) <= 4e-6);
      });
    }
  }
}

TEST_CASE("match_magnitude: gives rows the target's root of the mean square") {
  test::for_every_backend([&](Backend& backend) {
    const Floats x(backend, {3, 4, 0, 0}), target(backend, {10, 10, 1, 1});
    backend.match_magnitude(
        {.target = target.data(), .x = x.data(), .floor = 1e-5f, .rows = 2, .width = 2});
    const std::vector<float> expected{30 / std::sqrt(12.5f), 40 / std::sqrt(12.5f), 0, 0};
    CHECK(test::largest_error(x.values(), expected) <= 2e-6);
  });
}

TEST_CASE("keep_outliers: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {1, 37, 64, 2048, 4100})
    for (const float deviations : {1.6448536f, 0.0f, -0.5f}) {
      const int64_t stride = width + 5;
      const auto run = [&](Backend& backend) {
        const Floats x(backend, test::normal(3 * stride, 1));
        backend.keep_outliers({.x = x.data(),
                               .rows = 3,
                               .width = width,
                               .row_stride = stride,
                               .deviations = deviations});
        return x.values();
      };
      const auto expected = run(*reference);
      test::for_each_backend([&](Backend& backend) {
        INFO("width " << width << ", " << deviations << " deviations");
        CHECK(test::largest_error(run(backend), expected) <= 2e-6);
      });
    }
}

TEST_CASE("keep_outliers: subtracts the border, keeps NaN and what lies behind the width") {
  const float nan = std::nanf("");
  test::for_every_backend([&](Backend& backend) {
    const Floats x(backend, {1, 1, 1, 5, 9, nan, 1, 1, 1, 9});
    backend.keep_outliers(
        {.x = x.data(), .rows = 2, .width = 4, .row_stride = 5, .deviations = 1.0f});
    const auto values = x.values();
    const float border = 2.0f + std::sqrt(3.0f);
    const std::vector<float> expected{0, 0, 0, 5 - border, 9};
    CHECK(test::largest_error(std::span(values).first(5), expected) <= 1e-6);
    CHECK(std::isnan(values[5]));
    CHECK(values[9] == 9.0f);
  });
}

}  // namespace
}  // namespace kvcal
