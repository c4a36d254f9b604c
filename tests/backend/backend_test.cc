#include "backend/backend.h"

#include <vector>

#include "core/error.h"
#include "support/catch.h"

namespace kvcal {
namespace {

TEST_CASE("compute types: names and sizes") {
  CHECK(name_of(ComputeType::kFloat32) == "float32");
  CHECK(name_of(ComputeType::kBFloat16) == "bfloat16");
  CHECK(name_of(ComputeType::kFloat16) == "float16");
  CHECK(bytes_of(ComputeType::kFloat32) == 4);
  CHECK(bytes_of(ComputeType::kBFloat16) == 2);
}

/// Counts the buffers freed and the operations that passed their check; computes nothing.
class CountingBackend : public Backend {
 public:
  int freed = 0, computed = 0;

  std::string_view name() const override { return "counting"; }
  std::string description() const override { return "counting"; }
  bool supports(ComputeType) const override { return false; }
  ComputeType preferred_compute_type() const override { return ComputeType::kFloat32; }
  int64_t preferred_batch_tokens(int64_t) const override { return 1; }
  Buffer allocate(size_t bytes) override { return {this, new std::byte[bytes], bytes}; }
  void free(std::byte* data, size_t) noexcept override {
    delete[] data;
    ++freed;
  }
  void copy_in(std::span<const std::byte>, std::byte*) override {}
  void copy_out(const std::byte*, std::span<std::byte>) override {}
  void fill_zero(std::byte*, size_t) override {}
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView>, ComputeType) override {
    return nullptr;
  }
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView>,
                                         std::span<const float>) override {
    return nullptr;
  }

 protected:
#define KVCAL_IGNORE(name, Args)         \
  void do_##name(const Args&) override { \
    ++computed;                          \
  }
  KVCAL_OPERATIONS(KVCAL_IGNORE)
#undef KVCAL_IGNORE
};

TEST_CASE("buffer: gives its memory back once, moved or assigned") {
  CountingBackend backend;
  {
    Buffer first = backend.allocate(8);
    Buffer second = std::move(first);
    CHECK(first.data() == nullptr);
    CHECK(first.size() == 0);
    CHECK(second.size() == 8);
    second = backend.allocate(16);
    CHECK(second.size() == 16);
    CHECK(backend.freed == 1);
  }
  CHECK(backend.freed == 2);
}

TEST_CASE("operation: its arguments are checked before the backend sees them") {
  CountingBackend backend;
  const std::vector<float> values(8);
  const TensorView table{.name = "table",
                         .dtype = DType::kF32,
                         .shape = {2, 4},
                         .bytes = std::as_bytes(std::span(values))};
  const std::vector<int32_t> known{0, 1}, unknown{1, 2};
  backend.embed({.table = table, .ids = known});
  CHECK(backend.computed == 1);
  CHECK_THROWS_AS(backend.embed({.table = table, .ids = unknown}), Error);
  CHECK(backend.computed == 1);
}

TEST_CASE("fused operation: a backend without it runs the operations it stands for") {
  CountingBackend backend;
  std::vector<float> values(8);
  PackedMatrix weight;
  weight.out_features = 4;
  const RowGroup group{.weight = weight, .rows = 1};
  backend.matmul_activate({.groups = {&group, 1}, .width = 2});
  CHECK(backend.computed == 2);
  backend.residual_norm({.x = values.data(),
                         .hidden = values.data(),
                         .next_weight = values.data(),
                         .rows = 2,
                         .width = 4});
  CHECK(backend.computed == 4);
}

}  // namespace
}  // namespace kvcal
