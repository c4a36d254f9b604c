// Groups of rows with a weight each: the single operations are the judge.
#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

/// Weights and biases of one shape, and rows of x for each.
struct Groups {
  Groups(Backend& backend, std::vector<int64_t> counts, int64_t in, int64_t out, ComputeType type)
      : rows(std::move(counts)), x(backend, inputs(rows, in, type)) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto values = test::normal(out * in, 20 + i, 0.2f);
      const TensorView view{"w", DType::kF32, Shape{out, in}, std::as_bytes(std::span(values))};
      weights.push_back(backend.pack(std::span(&view, 1), type));
      biases.push_back(
          std::make_unique<test::OnBackend<float>>(backend, test::normal(out, 40 + i)));
      slots.push_back(std::make_unique<test::OnBackend<float>>(backend, std::vector<float>(1)));
      has_bias.push_back(i % 2 == 0);
      nonfinite.push_back(
          std::make_unique<test::OnBackend<uint64_t>>(backend, std::vector<uint64_t>(1)));
    }
  }
  static std::vector<std::byte> inputs(const std::vector<int64_t>& rows, int64_t in,
                                       ComputeType type) {
    int64_t all = 0;
    for (const int64_t count : rows) all += count;
    return test::to_elements(test::normal(all * in, 3), type);
  }
  /// The others' slots are none.
  RowGroup group(size_t i, bool has_slot) const {
    return {.weight = *weights[i],
            .bias = has_bias[i] ? biases[i]->data() : nullptr,
            .rows = rows[i],
            .seen = has_slot ? AmaxSlot{slots[i]->data(), nonfinite[i]->data()} : AmaxSlot{}};
  }
  std::vector<RowGroup> groups() const {
    std::vector<RowGroup> all;
    for (size_t i = 0; i < rows.size(); ++i) all.push_back(group(i, i >= 3));
    return all;
  }

  void set_biases(bool wanted) { has_bias.assign(rows.size(), wanted); }

  std::vector<int64_t> rows;
  std::vector<bool> has_bias;  ///< every other one has
  test::OnBackend<std::byte> x;
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  std::vector<std::unique_ptr<test::OnBackend<float>>> biases, slots;
  std::vector<std::unique_ptr<test::OnBackend<uint64_t>>> nonfinite;
};

// More groups than streams, with none and one row among them.
const std::vector<int64_t> kRows{5, 1, 0, 33, 2, 17, 8, 1};
constexpr int64_t kAllRows = 67;

TEST_CASE("matmul_groups: the bytes of a matmul a group, on every backend") {
  for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{64, 48}, {37, 21}})
      for (const bool is_decoding : {false, true})
        test::for_every_backend([&](Backend& backend) {
          if (!backend.supports(type)) return;
          INFO(in << " to " << out << " as " << name_of(type));
          const Groups groups(backend, kRows, in, out, type);
          const std::vector<float> nothing(static_cast<size_t>(kAllRows * out), 77.0f);
          const test::OnBackend<float> at_once(backend, nothing), apart(backend, nothing);
          MatmulGroupsArgs args{.x = groups.x.data(),
                                .type = type,
                                .groups = {},
                                .out = at_once.data(),
                                .is_decoding = is_decoding};
          const std::vector<RowGroup> all = groups.groups();
          MatmulGroupsArgs asked = args;
          asked.groups = all;
          backend.matmul_groups(asked);
          int64_t row = 0;
          for (const RowGroup& group : all) {
            backend.matmul({.x = groups.x.data() + static_cast<size_t>(row * in) * bytes_of(type),
                            .weight = group.weight,
                            .bias = group.bias,
                            .rows = group.rows,
                            .out = apart.data() + row * out,
                            .is_decoding = is_decoding});
            row += group.rows;
          }
          CHECK(row == kAllRows);
          CHECK(test::same_bytes(at_once.values(), apart.values()));
        });
}

TEST_CASE("matmul_activate: groups give the bytes of calls of their own, and their slots") {
  constexpr int64_t kIn = 64, kWidth = 24;
  for (const auto& [type, has_biases] : {std::pair{ComputeType::kFloat32, true},
                                         {ComputeType::kBFloat16, true},
                                         {ComputeType::kBFloat16, false}})
    test::for_every_backend([&](Backend& backend) {
      if (!backend.supports(type)) return;
      Groups together(backend, kRows, kIn, 2 * kWidth, type),
          apart(backend, kRows, kIn, 2 * kWidth, type);
      for (Groups* groups : {&together, &apart}) groups->set_biases(has_biases);
      const test::OnBackend<float> scratch(
          backend, std::vector<float>(static_cast<size_t>(kAllRows * 2 * kWidth)));
      const std::vector<std::byte> nothing(static_cast<size_t>(kAllRows * kWidth) * bytes_of(type));
      const test::OnBackend<std::byte> out(backend, nothing), expected(backend, nothing);
      const auto run = [&](const Groups& groups, std::span<const RowGroup> which, int64_t row,
                           std::byte* to) {
        backend.matmul_activate(
            {.x = groups.x.data() + static_cast<size_t>(row * kIn) * bytes_of(type),
             .type = type,
             .groups = which,
             .width = kWidth,
             .scratch = scratch.data(),
             .out_type = type,
             .out = to + static_cast<size_t>(row * kWidth) * bytes_of(type)});
      };
      const std::vector<RowGroup> all = together.groups();
      run(together, all, 0, out.data());
      int64_t row = 0;
      for (size_t i = 0; i < kRows.size(); ++i) {
        const RowGroup group = apart.group(i, i >= 3);
        run(apart, {&group, 1}, row, expected.data());
        row += group.rows;
      }
      CHECK(out.values() == expected.values());
      for (size_t i = 0; i < kRows.size(); ++i) {
        CHECK(together.slots[i]->values() == apart.slots[i]->values());
        CHECK((together.slots[i]->values()[0] > 0.0f) == (i >= 3));
      }
    });
}

}  // namespace
}  // namespace kvcal
