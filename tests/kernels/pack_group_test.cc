// Matrices that several backends of one kind pack together.
#include "backend/pack_shape.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "core/process.h"
#include "support/backends.h"
#include "support/near.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// Backends of a kind; simulated ones are two devices in turn, others are all on the first.
struct Backends {
  Backends(const std::string& name, size_t count, int threads = 1) {
    for (size_t i = 0; i < count; ++i) {
#ifdef KVCAL_TEST_SIMULATED_GPU
      if (name == "simulated")
        owned.push_back(
            make_gpu_backend({.num_threads = threads, .device_index = static_cast<int>(i % 2)}));
#endif
      if (owned.size() == i) owned.push_back(test::make_backend(name, threads));
      all.push_back(owned.back().get());
    }
  }
  std::unique_ptr<PackGroup> group() const {
    return all.front()->make_pack_group(all);
  }

  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> all;
};

/// Whole numbers that differ from row to row and from column to column, and how often rows were
/// decoded, by which threads.
class CountedRows : public RowDecoder {
 public:
  explicit CountedRows(int64_t width) : width_(width) {}
  static float value(int64_t row, int64_t column) {
    return static_cast<float>((row * 3 + column * 7) % 11 - 5);
  }
  int64_t width() const override { return width_; }
  void decode(int64_t first, int64_t count, float* out) const override {
    {
      const std::lock_guard lock(mutex_);
      threads.insert(std::this_thread::get_id());
      decoded += count;
    }
    if (first <= fails_at && fails_at < first + count) fail("holds NaN");
    // Several threads decode together where there are several.
    for (int i = 0; i < waits_for_others && num_threads() < 2; ++i) std::this_thread::yield();
    for (int64_t row = first; row < first + count; ++row)
      for (int64_t column = 0; column < width_; ++column) *out++ = value(row, column);
  }
  size_t num_threads() const {
    const std::lock_guard lock(mutex_);
    return threads.size();
  }
  mutable int64_t decoded = 0;
  mutable std::set<std::thread::id> threads;
  int64_t fails_at = -1;
  int waits_for_others = 0;

 private:
  int64_t width_;
  mutable std::mutex mutex_;
};

/// Sums of a matrix's rows, as a product with ones.
std::vector<float> row_sums(Backend& backend, const PackedMatrix& weight) {
  const std::vector<float> ones(static_cast<size_t>(weight.in_features), 1.0f);
  const test::OnBackend<float> x(backend, ones);
  const test::OnBackend<float> out(
      backend, std::vector<float>(static_cast<size_t>(weight.out_features), 0.5f));
  backend.matmul(
      {.x = x.data(), .weight = weight, .rows = 1, .out = out.data(), .is_decoding = true});
  return out.values();
}

std::vector<float> expected_sums(int64_t rows, int64_t width) {
  std::vector<float> sums;
  for (int64_t row = 0; row < rows; ++row) {
    sums.push_back(0.0f);
    for (int64_t column = 0; column < width; ++column)
      sums.back() += CountedRows::value(row, column);
  }
  return sums;
}

TEST_CASE("pack group: every backend has the matrix that it would pack alone") {
  constexpr int64_t kIn = 37;
  const std::vector<float> values = test::normal(70 * kIn, 11, 0.1f);
  const std::vector<uint8_t> codes(70 * kIn, 0x3a);
  const std::vector<float> scales{0.5f, 0.25f};
  for (const std::string& name : test::backend_names()) {
    const Backends backends(name, 3);
    const auto group = backends.group();
    REQUIRE(group->backends().size() == 3);
    const auto product = [&](Backend& backend, const PackedMatrix& weight) {
      const test::OnBackend<float> x(backend, test::normal(2 * kIn, 5));
      const test::OnBackend<float> out(backend, std::vector<float>(2 * 70));
      backend.matmul({.x = x.data(), .weight = weight, .rows = 2, .out = out.data()});
      return out.values();
    };
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      INFO(name << ", " << dtype);
      const auto elements =
          test::to_elements(values, dtype == DType::kF32    ? ComputeType::kFloat32
                                    : dtype == DType::kBF16 ? ComputeType::kBFloat16
                                                            : ComputeType::kFloat16);
      const auto half = elements.size() / 2;
      const std::vector<TensorView> parts{
          {"a", dtype, Shape{35, kIn}, std::span(elements).first(half)},
          {"b", dtype, Shape{35, kIn}, std::span(elements).subspan(half)}};
      const auto packed = group->pack({.parts = parts});
      REQUIRE(packed.size() == 3);
      for (size_t i = 0; i < 3; ++i) {
        const auto alone = backends.all[i]->pack(parts, ComputeType::kFloat32);
        CHECK(packed[i]->bytes == alone->bytes);
        CHECK(test::same_bytes(product(*backends.all[i], *packed[i]),
                               product(*backends.all[i], *alone)));
      }
    }
    const auto bytes = std::as_bytes(std::span(codes));
    const std::vector<TensorView> parts{
        {"a", DType::kF8E4M3, Shape{35, kIn}, bytes.first(bytes.size() / 2)},
        {"b", DType::kF8E4M3, Shape{35, kIn}, bytes.subspan(bytes.size() / 2)}};
    for (const auto& packed : group->pack({.parts = parts, .scales = scales})) {
      CHECK(packed->out_features == 70);
      CHECK(packed->in_features == kIn);
    }
  }
}

TEST_CASE("pack group: devices decode rows once, into memory for all of them") {
  // Rows of 2.5 MiB: six chunks and a part of one, so every chunk is used again.
  constexpr int64_t kRows = 40, kWidth = 655'360;
  const std::vector<float> sums = expected_sums(kRows, kWidth);
  for (const std::string& name : test::device_names()) {
    INFO(name);
    const CountedRows rows(kWidth);
    const std::vector<DecodedRows> parts{{&rows, 0, kRows}};
    const Backends backends(name, 3, 2);
    const auto packed = backends.group()->pack({.decoded = parts});
    CHECK(rows.decoded == kRows);
    CHECK(rows.threads.size() <= 2);
    for (const size_t i : {size_t{2}, size_t{0}, size_t{1}}) {
      INFO("device " << i);
      CHECK(row_sums(*backends.all[i], *packed[i]) == sums);
    }
  }
}

TEST_CASE("pack group: a row longer than a chunk has a chunk of its own") {
  constexpr int64_t kRows = 6, kWidth = (16 << 20) / 4 + 8;
  for (const std::string& name : test::device_names()) {
    INFO(name);
    const CountedRows rows(kWidth);
    const std::vector<DecodedRows> parts{{&rows, 0, kRows}};
    const Backends backends(name, 2);
    const auto packed = backends.group()->pack({.decoded = parts});
    CHECK(rows.decoded == kRows);
    for (size_t i = 0; i < 2; ++i)
      CHECK(row_sums(*backends.all[i], *packed[i]) == expected_sums(kRows, kWidth));
  }
}

TEST_CASE("pack group: several threads decode") {
  if (allowed_cpus().size() < 2) return;  // there is one
  constexpr int64_t kRows = 64, kWidth = 16'384;
  for (const std::string& name : test::device_names()) {
    INFO(name);
    CountedRows rows(kWidth);
    rows.waits_for_others = 10'000'000;
    const std::vector<DecodedRows> parts{{&rows, 0, kRows}};
    const Backends backends(name, 1, 2);
    const auto packed = backends.group()->pack({.decoded = parts});
    CHECK(rows.threads.size() == 2);
    CHECK(row_sums(*backends.all[0], *packed[0]) == expected_sums(kRows, kWidth));
  }
}

#ifdef KVCAL_TEST_SIMULATED_GPU

using gpu::simulator::pinned_bytes;
constexpr size_t kRing = size_t{64} << 20;

TEST_CASE("pack group: pinned memory is a ring for all devices, given back with the group") {
  constexpr int64_t kRows = 40, kWidth = 655'360;
  const CountedRows rows(kWidth);
  const std::vector<DecodedRows> parts{{&rows, 0, kRows}};
  const Backends backends("simulated", 3, 2);
  const size_t before = pinned_bytes();
  auto group = backends.group();
  const auto packed = group->pack({.decoded = parts});
  CHECK(pinned_bytes() == before + kRing);
  row_sums(*backends.all[0], *packed[0]);
  const size_t small = pinned_bytes() - before - kRing;  // of row_sums' copies
  group.reset();
  CHECK(pinned_bytes() == before + small);
}

/// Fills new memory of the size that the matrix had, and runs all that the devices were asked for:
/// nothing may write there any more.
void check_is_free(Backend& backend, size_t bytes) {
  const std::vector<std::byte> written(bytes, std::byte{7});
  const Buffer reused = backend.allocate(bytes);
  backend.copy_in(written, reused.data());
  backend.record([] {});
  std::vector<std::byte> found(bytes);
  backend.copy_out(reused.data(), found);
  const bool same = found == written;  // too long to be shown
  CHECK(same);
}

TEST_CASE("pack group: an error ends packing on all devices, which go on") {
  constexpr int64_t kRows = 64, kWidth = 131'072;  // two chunks
  CountedRows rows(kWidth);
  const std::vector<DecodedRows> parts{{&rows, 0, kRows}};
  const Backends backends("simulated", 3, 2);
  for (Backend* backend : backends.all) check_is_free(*backend, 64);  // has its small chunks
  const size_t before = pinned_bytes();
  for (const int copies : {-1, 0, 1, 2, 3, 4, 5}) {
    INFO("after " << copies << " copies");
    {
      const auto group = backends.group();
      rows.fails_at = copies < 0 ? kRows - 1 : -1;
      gpu::simulator::fail_copies_after(copies);
      const std::string message = test::message_of([&] { group->pack({.decoded = parts}); });
      gpu::simulator::fail_copies_after(-1);
      CHECK(message == (copies < 0 ? "holds NaN" : "simulated: copying: the device is gone"));
      for (Backend* backend : backends.all)
        check_is_free(*backend, static_cast<size_t>(kRows * kWidth) * 4);
      rows.fails_at = -1;
      CHECK(group->pack({.decoded = parts}).size() == 3);
    }
    CHECK(pinned_bytes() <= before + 3 * (size_t{8} << 20));  // what copy_in keeps
  }
}

#endif

}  // namespace
}  // namespace kvcal
