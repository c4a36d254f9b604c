// What a GPU's backend tells of its work: the algorithms of its library, and the time of its parts.
#ifdef KVCAL_TEST_SIMULATED_GPU

#include <map>

#include "kernels/gpu/make_gpu_backend.h"
#include "kernels/gpu/vendor_matmul.h"
#include "simulator/simulator.h"
#include "support/catch.h"

namespace kvcal::gpu {
namespace {

const ProductChoice kChoice{"bfloat16, 16 to 8", "66, tile 128x256", "first, not timed"};

/// A library that has chosen and takes nothing.
class Telling : public VendorMatmul {
 public:
  std::string name() const override { return "telling 1.0"; }
  bool takes(const MatmulProblem&) override { return false; }
  bool runs_side_by_side() const override { return true; }
  void run(Stream&, DeviceMemory&, const MatmulProblem&) override {}
  std::vector<ProductChoice> choices() const override { return {kChoice}; }
};

/// Products, a pass and copies; their times by part.
std::map<std::string, double> times_of(Backend& backend) {
  const std::vector<float> values(8, 0.5f);
  const TensorView view{"w", DType::kF32, Shape{2, 4}, std::as_bytes(std::span(values))};
  const auto weight = backend.pack(std::span(&view, 1), ComputeType::kFloat32);
  const Buffer x = backend.allocate(3 * 4 * sizeof(float));
  const Buffer out = backend.allocate(3 * 2 * sizeof(float));
  backend.fill_zero(x.data(), x.size());
  backend.matmul({.x = x.data(), .weight = *weight, .rows = 3, .out = out.as<float>()});
  std::vector<float> got(6, 1.0f);
  backend.copy_out(out.data(), std::as_writable_bytes(std::span(got)));
  CHECK(got == std::vector<float>(6, 0.0f));
  std::map<std::string, double> times;
  for (const PartTime& time : backend.part_times()) times[time.part] = time.seconds;
  return times;
}

TEST_CASE("gpu account: the library is told the device and whether to time, and its choices told") {
  std::vector<MatmulOptions> asked;
  simulator::set_vendor_matmul([&](const MatmulOptions& options) {
    asked.push_back(options);
    return std::make_unique<Telling>();
  });
  const auto quiet = make_gpu_backend({}), timing = make_gpu_backend({.times_products = true});
  simulator::set_vendor_matmul(nullptr);
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].device == "simulated device, simulated");
  CHECK(asked[1].device == asked[0].device);
  CHECK_FALSE(asked[0].times_products);
  CHECK(asked[1].times_products);
  CHECK(timing->product_choices() == std::vector<ProductChoice>{kChoice});
  CHECK(make_gpu_backend({})->product_choices().empty());  // which has no library
}

TEST_CASE("gpu account: time is taken by part where it is asked for") {
  CHECK(times_of(*make_gpu_backend({})).empty());
  const auto times = times_of(*make_gpu_backend({.times_parts = true}));
  REQUIRE(times.size() == 5);
  // A simulated operation takes a millisecond: the kernel, the wait for the weight, the filling
  // and the copy to the host.
  CHECK(times.at("products") == 0.001);
  CHECK(times.at("waits") == 0.001);
  CHECK(times.at("passes") == 0.001);
  CHECK(times.at("copies") == 0.001);
  CHECK(times.at("attention") == 0.0);
}

}  // namespace
}  // namespace kvcal::gpu

#endif
