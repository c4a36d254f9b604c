// Products of devices whose libraries choose algorithms by time: their bytes are those of the rule.
#include "quant/half.h"
#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr int64_t kIn = 32, kOut = 16;

/// A product of so many rows, in bfloat16.
std::vector<float> product_on(Backend& backend, int64_t rows) {
  const std::vector<float> numbers = test::normal((rows + kOut) * kIn, 5);
  std::vector<BF16> values(numbers.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(numbers[i]);
  const std::span<const BF16> all(values);
  const auto weights = all.first(static_cast<size_t>(kOut * kIn));
  const auto inputs = all.subspan(weights.size());
  const TensorView view{"w", DType::kBF16, Shape{kOut, kIn}, std::as_bytes(weights)};
  const auto weight = backend.pack(std::span(&view, 1), ComputeType::kBFloat16);
  const Buffer x = backend.allocate(inputs.size_bytes());
  const Buffer out = backend.allocate(static_cast<size_t>(rows * kOut) * sizeof(float));
  backend.copy_in(std::as_bytes(inputs), x.data());
  backend.matmul({.x = x.data(), .weight = *weight, .rows = rows, .out = out.as<float>()});
  std::vector<float> result(static_cast<size_t>(rows * kOut));
  backend.copy_out(out.data(), std::as_writable_bytes(std::span(result)));
  return result;
}

TEST_CASE("timed products: time changes no byte, and each choice is told") {
  for (const std::string& name : test::device_names()) {
    const auto ruled = test::make_backend(name);
    const auto timed = test::make_backend(name, {.times_products = true});
    INFO(timed->description());
    for (const int64_t rows : {1, 37, 200})
      CHECK(test::same_bytes(product_on(*timed, rows), product_on(*ruled, rows)));
    const auto choices = timed->product_choices();
    CHECK(choices.size() == ruled->product_choices().size());
    for (const ProductChoice& choice : choices) {
      CHECK(choice.product == "bfloat16, 32 to 16");
      CHECK_FALSE(choice.algorithm.empty());
      CHECK_FALSE(choice.reason.empty());
    }
  }
}

}  // namespace
}  // namespace kvcal
