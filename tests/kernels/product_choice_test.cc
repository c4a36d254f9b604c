// How an algorithm of a matrix library is chosen, for a library whose algorithms the test scripts.
#ifdef KVCAL_TEST_SIMULATED_GPU

#include "kernels/gpu/product_choice.h"
#include "quant/half.h"
#include "simulator/simulator.h"
#include "support/catch.h"

namespace kvcal::gpu {
namespace {

constexpr int64_t kRows = 8192, kIn = 16, kOut = 8;

/// In which order an algorithm adds up: from the first product on, or from the last where a product
/// has more than kRows rows, or in every other group of 64 rows, as parts of a grid may.
enum class Order { kForward, kBackward, kByRows, kByPlace };

struct Script {
  std::string text;
  double milliseconds;  ///< of kRows rows; of more, so many times as much
  Order order = Order::kForward;
  bool takes_more_rows = true;
};

struct Machine {
  double now = 0.0;  ///< what the clock shows; only products take time
  int products = 0;
};

class ScriptedLibrary : public AlgorithmLibrary {
 public:
  ScriptedLibrary(Machine& machine, std::vector<Script> scripts)
      : machine_(machine), scripts_(std::move(scripts)) {}

  std::string name() const override { return "scripted 1.0"; }
  bool fits(const MatmulProblem& problem) const override { return problem.in % 8 == 0; }
  int64_t rows() const override { return kRows; }
  bool runs_side_by_side() const override { return true; }
  std::vector<Algorithm> algorithms(const MatmulProblem&) override {
    std::vector<Algorithm> all;
    for (size_t i = 0; i < scripts_.size(); ++i)
      all.push_back({.data = {i}, .text = scripts_[i].text});
    return all;
  }
  bool takes_rows(const Algorithm& algorithm, const MatmulProblem& problem) override {
    return problem.rows <= kRows || scripts_[algorithm.data[0]].takes_more_rows;
  }
  void multiply(Stream& stream, const MatmulProblem& problem, const Algorithm& algorithm) override {
    const Script script = scripts_[algorithm.data[0]];
    stream.handle->push([problem, script, &machine = machine_] {
      for (int64_t row = 0; row < problem.rows; ++row)
        for (int64_t n = 0; n < problem.out_features; ++n)
          static_cast<float*>(problem.out)[row * problem.out_stride + n] =
              sum_of(problem, script.order, row, n);
      machine.now += script.milliseconds * static_cast<double>(problem.rows) / kRows;
      ++machine.products;
    });
  }

 private:
  static float sum_of(const MatmulProblem& problem, Order order, int64_t row, int64_t n) {
    const bool backward = order == Order::kBackward ||
                          (order == Order::kByRows && problem.rows > kRows) ||
                          (order == Order::kByPlace && row / 64 % 2 == 1);
    const auto* x = static_cast<const BF16*>(problem.x) + row * problem.in;
    const auto* weight = static_cast<const BF16*>(problem.weight) + n * problem.in;
    float sum = 0.0f;
    for (int64_t i = 0; i < problem.in; ++i) {
      const int64_t k = backward ? problem.in - 1 - i : i;
      sum += to_float(x[k]) * to_float(weight[k]);
    }
    return sum;
  }

  Machine& machine_;
  std::vector<Script> scripts_;
};

/// A process with one device and its library.
struct Process {
  Machine machine;
  ProductChoices choices{[this] { return machine.now; }};

  std::unique_ptr<ChosenMatmul> open(std::vector<Script> scripts, bool times = true) {
    return std::make_unique<ChosenMatmul>(
        std::make_unique<ScriptedLibrary>(machine, std::move(scripts)),
        MatmulOptions{.device = "a device", .times_products = times}, choices);
  }
};

/// A problem of that shape; its operands are not read where it is only asked about.
MatmulProblem problem_of(int64_t in = kIn, int64_t out = kOut) {
  return {
      .type = ComputeType::kBFloat16, .rows = 4, .in = in, .out_features = out, .out_stride = out};
}

ProductChoice choice_of(ChosenMatmul& matmul) {
  REQUIRE(matmul.takes(problem_of()));
  REQUIRE(matmul.choices().size() == 1);
  return matmul.choices().front();
}

TEST_CASE("product choice: the fastest algorithm with the first one's sums is taken") {
  Process process;
  const auto matmul = process.open({{"favourite", 3.0},
                                    {"other sums", 0.5, Order::kBackward},
                                    {"sums by rows", 1.0, Order::kByRows},
                                    {"sums by place", 1.2, Order::kByPlace},
                                    {"few rows", 1.1, Order::kForward, false},
                                    {"best", 2.0},
                                    {"slow", 4.0}});
  const ProductChoice choice = choice_of(*matmul);
  CHECK(choice.product == "bfloat16, 16 to 8");
  CHECK(choice.algorithm == "few rows");  // at other places of as many rows its sums are the same
  CHECK(choice.reason == "fastest of 5 timed, in 0.37 of the first one's time, 3 refused");
}

TEST_CASE("product choice: the first is left for another only where that is worth it") {
  Process process;
  CHECK(choice_of(*process.open({{"favourite", 3.0}, {"hardly faster", 2.97}})).algorithm ==
        "favourite");
}

TEST_CASE("product choice: a favourite whose sums depend on the rows is refused, too") {
  Process process;
  const ProductChoice choice =
      choice_of(*process.open({{"by rows", 1.0, Order::kByRows}, {"next", 2.0}, {"last", 3.0}}));
  CHECK(choice.algorithm == "next");
  CHECK(choice.reason == "fastest of 2 timed, 1 refused");
  // Where all are, the rule has the last word and the reason says what was found.
  Process other;
  const ProductChoice none = choice_of(
      *other.open({{"by rows", 1.0, Order::kByRows}, {"by place", 1.0, Order::kByPlace}}));
  CHECK(none.algorithm == "by rows");
  CHECK(none.reason == "first, 2 refused");
  // One alone is not tried.
  Process alone;
  CHECK(choice_of(*alone.open({{"by rows", 1.0, Order::kByRows}})).reason == "first, the only one");
  CHECK(alone.machine.products == 0);
}

TEST_CASE("product choice: without timing the first is taken, and nothing runs") {
  Process process;
  const auto matmul = process.open({{"favourite", 3.0}, {"best", 1.0}}, false);
  const ProductChoice choice = choice_of(*matmul);
  CHECK(choice.algorithm == "favourite");
  CHECK(choice.reason == "first, not timed");
  CHECK(process.machine.products == 0);
}

TEST_CASE("product choice: the time of a process is kept over all its shapes and devices") {
  Process process;
  // 8 candidates of 2 ms take (1 + 2 + 1) + 7 * 2 products of it and a proof, some 42 ms.
  std::vector<Script> scripts(8, {"slow", 2.0});
  scripts[7] = {"best", 1.5};
  const auto first = process.open(scripts), second = process.open(scripts);
  size_t shapes = 0;
  for (int64_t out = 8; out <= 96; out += 8) {
    REQUIRE(first->takes(problem_of(kIn, out)));
    const double spent = process.choices.spent();
    // The other device takes the same choice without a product.
    REQUIRE(second->takes(problem_of(kIn, out)));
    CHECK(process.choices.spent() == spent);
    CHECK(spent == process.machine.now);
    CHECK(spent <= ProductChoices::kMostMilliseconds);
    ++shapes;
  }
  CHECK(process.choices.spent() > 0.9 * ProductChoices::kMostMilliseconds);
  const auto choices = first->choices();
  REQUIRE(choices.size() == shapes);
  size_t fast = 0, late = 0;
  for (const ProductChoice& choice : choices) {
    fast += choice.algorithm == "best" ? 1 : 0;
    late += choice.reason == "first, no time was left for others" ? 1 : 0;
  }
  CHECK(fast >= 6);
  CHECK(late >= 1);
}

TEST_CASE("product choice: a product that would take too long is not tried") {
  Process process;
  const auto matmul = process.open({{"favourite", 3.0}, {"best", 1.0}});
  MatmulProblem large = problem_of(int64_t{1} << 15, int64_t{1} << 17);
  REQUIRE(matmul->takes(large));
  CHECK(process.machine.products == 0);
  CHECK(matmul->choices().at(0).reason == "first, no time was left for others");
}

TEST_CASE("product choice: little memory leaves the rule, and what was tried gives its back") {
  Process process;
  const size_t before = simulator::free_memory();
  choice_of(*process.open({{"favourite", 3.0}, {"best", 1.0}}));
  CHECK(simulator::free_memory() == before);
  const size_t limit = simulator::total_memory();
  simulator::set_memory_limit(limit - before + (size_t{1} << 22));  // four times what it takes
  Process poor;
  const ProductChoice choice = choice_of(*poor.open({{"favourite", 3.0}, {"best", 1.0}}));
  simulator::set_memory_limit(limit);
  CHECK(choice.reason == "first, no memory to try others");
  CHECK(poor.machine.products == 0);
}

TEST_CASE("product choice: the chosen algorithm runs, in fixed rows where it takes no others") {
  for (const bool takes_more : {true, false}) {
    Process process;
    const auto matmul = process.open({{"other", 3.0}, {"best", 1.0, Order::kForward, takes_more}});
    DeviceMemory memory;
    Stream stream;
    MatmulProblem problem = problem_of();
    problem.rows = kRows + 3;
    std::vector<BF16> x(static_cast<size_t>(problem.rows * kIn)), weight(kOut * kIn);
    for (size_t i = 0; i < x.size(); ++i) x[i] = to_bf16(0.25f * static_cast<float>(i % 13));
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] = to_bf16(1.0f - static_cast<float>(i % 5));
    std::vector<float> out(static_cast<size_t>(problem.rows * kOut));
    const ScopedMemory on_device(memory, stream, x.size() * 2),
        weights(memory, stream, weight.size() * 2), sums(memory, stream, out.size() * 4);
    stream.copy(on_device.data, x.data(), x.size() * 2);
    stream.copy(weights.data, weight.data(), weight.size() * 2);
    problem.x = on_device.data;
    problem.weight = weights.data;
    problem.out = sums.data;
    REQUIRE(matmul->takes(problem));
    CHECK(choice_of(*matmul).algorithm == "best");
    const int before = process.machine.products;
    matmul->run(stream, memory, problem);
    stream.copy(out.data(), sums.data, out.size() * 4);
    stream.synchronize();
    CHECK(process.machine.products - before == (takes_more ? 1 : 2));
    double wrong = 0.0;
    for (size_t row = 0; row < static_cast<size_t>(problem.rows); ++row)
      for (size_t n = 0; n < kOut; ++n) {
        double sum = 0.0;
        for (size_t k = 0; k < kIn; ++k)
          sum += static_cast<double>(to_float(x[row * kIn + k])) * to_float(weight[n * kIn + k]);
        wrong = std::max(wrong, std::abs(sum - out[row * kOut + n]));
      }
    CHECK(wrong < 1e-4);
  }
}

TEST_CASE("product choice: decoding is chosen by its rows, without a trial or a record of it") {
  Process process;
  const auto matmul = process.open({{"favourite", 3.0}, {"best", 1.0}});
  MatmulProblem problem = problem_of();
  problem.is_decoding = true;
  CHECK(matmul->takes(problem));
  CHECK(process.machine.products == 0);
  CHECK(matmul->choices().empty());
}

}  // namespace
}  // namespace kvcal::gpu

#endif
