// What a run tells of its devices' work, and which of it is taken.
#include "run/devices.h"

#include "run/calibrate_request.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

namespace kvcal {
namespace {

const ProductChoice kWide{"bfloat16, 4096 to 28672", "66, tile 128x256", "fastest of 5 timed"};
const ProductChoice kSquare{"bfloat16, 4096 to 4096", "66, tile 128x128", "first, not timed"};

std::unique_ptr<test::PretendingBackend> device(std::vector<ProductChoice> choices,
                                                std::vector<PartTime> parts) {
  auto made = std::make_unique<test::PretendingBackend>(nullptr);  // computes nothing
  made->made_choices = std::move(choices);
  made->taken_times = std::move(parts);
  return made;
}

TEST_CASE("device work: devices tell a choice once, and add up their time") {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(device({kSquare, kWide}, {{"products", 3.0}, {"waits", 0.5}}));
  backends.push_back(device({kWide}, {{"products", 2.0}, {"waits", 0.0}}));
  CHECK(product_choices_of(backends) == std::vector<ProductChoice>{kSquare, kWide});
  const std::vector<PartTime> parts = part_times_of(backends);
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].part == "products");
  CHECK(parts[0].seconds == 5.0);
  CHECK(parts[1].seconds == 0.5);
}

TEST_CASE("device work: the manifest and --verbose name each choice") {
  CHECK(products_json({}).is_null());
  const std::vector<ProductChoice> choices{kWide};
  CHECK(products_json(choices).dump() ==
        R"([{"product":"bfloat16, 4096 to 28672","algorithm":"66, tile 128x256",)"
        R"("chosen":"fastest of 5 timed"}])");
  CHECK(device_work_text({}, {}).empty());
  const std::vector<PartTime> parts{{"products", 7.5}, {"attention", 2.5}};
  const std::string text = device_work_text(choices, parts);
  for (const char* shown : {"bfloat16, 4096 to 28672", "66, tile 128x256", "fastest of 5 timed",
                            "7.500", "75", "2.500", "25"}) {
    INFO(shown);
    CHECK(text.find(shown) != std::string::npos);
  }
}

TEST_CASE("device work: products are timed unless bytes or memory are promised") {
  CalibrateRequest request;
  CHECK(timed_devices(request, {}).times_products);
  CHECK_FALSE(timed_devices(request, {}).times_parts);
  request.times_parts = true;
  CHECK(timed_devices(request, {}).times_parts);
  request.reproducible = true;
  CHECK_FALSE(timed_devices(request, {}).times_products);
  request.reproducible = false;
  request.memory_limit = "8GiB";
  CHECK_FALSE(timed_devices(request, {.device = "cpu"}).times_products);
}

}  // namespace
}  // namespace kvcal
