#include <functional>
#include <numeric>

#include "support/backends.h"
#include "support/near.h"

// A row's bytes depend neither on the rows beside it nor on the threads. Attention and matmul,
// which cut their work into larger pieces, test this in their own files.
namespace kvcal {
namespace {

constexpr int64_t kRows = 300, kWidth = 577;
using Bytes = std::vector<std::byte>;

/// An operation on rows [begin, begin + count) of the same inputs.
struct RowOperation {
  std::string what;
  std::function<Bytes(Backend&, int64_t begin, int64_t count)> run;
};

std::vector<float> some(int64_t begin, int64_t count, int64_t width = kWidth, uint64_t seed = 1) {
  const auto all = test::normal(kRows * width, seed, 2.0f);
  return {all.begin() + begin * width, all.begin() + (begin + count) * width};
}

using Floats = test::OnBackend<float>;

/// What an operation has written.
template <class T>
Bytes bytes_of(const test::OnBackend<T>& memory) {
  const auto values = memory.values();
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
template <class T>
test::OnBackend<T> room_for(Backend& backend, int64_t count) {
  return {backend, std::vector<T>(static_cast<size_t>(count))};
}
/// 0, 1, ...
std::vector<int32_t> numbers(int64_t begin, int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), static_cast<int32_t>(begin));
  return all;
}

RowOperation norm(bool centered) {
  return {centered ? "norm, centered" : "norm",
          [centered](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)), weight(backend, test::normal(kWidth, 2));
            const auto out = room_for<BF16>(backend, count * kWidth);
            backend.norm({.x = x.data(),
                          .weight = weight.data(),
                          .bias = centered ? weight.data() : nullptr,
                          .centered = centered,
                          .epsilon = 1e-5f,
                          .rows = count,
                          .width = kWidth,
                          .out_type = ComputeType::kBFloat16,
                          .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation norm_heads(bool centered) {
  return {"norm_heads", [centered](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)), weight(backend, test::normal(7 * 80, 2));
            backend.norm_heads({.x = {x.data(), count, 7, 80, kWidth},
                                .weight = weight.data(),
                                .weight_per_head = true,
                                .centered = centered,
                                .epsilon = 1e-5f});
            return bytes_of(x);
          }};
}

RowOperation activate(Activation activation, bool gated, float limit) {
  return {"activate " + std::to_string(static_cast<int>(activation)),
          [=](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count, gated ? 2 * kWidth : kWidth));
            const auto out = room_for<float>(backend, count * kWidth);
            backend.activate({.x = x.data(),
                              .gated = gated,
                              .activation = {.kind = activation,
                                             .limit = limit,
                                             .alpha_p = 0.8f,
                                             .alpha_n = 1.1f,
                                             .beta = 0.5f,
                                             .eps = -1e-6f},
                              .rows = count,
                              .width = kWidth,
                              .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation gated_norm(bool gate_first) {
  return {"gated_norm", [gate_first](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                gate(backend, some(begin, count, kWidth, 2)),
                weight(backend, test::normal(7 * 80, 3));
            const auto out = room_for<BF16>(backend, count * 7 * 80);
            backend.gated_norm({.x = {x.data(), kWidth},
                                .gate = {gate.data(), kWidth},
                                .weight = weight.data(),
                                .weight_per_group = true,
                                .gate_first = gate_first,
                                .epsilon = 1e-5f,
                                .rows = count,
                                .groups = 7,
                                .width = 80,
                                .out_type = ComputeType::kBFloat16,
                                .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation multiply_gate(GateFunction function) {
  return {"multiply_gate", [function](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                gate(backend, some(begin, count, kWidth, 2));
            const auto out = room_for<F16>(backend, count * 3 * 77);
            backend.multiply_gate({.x = {x.data(), kWidth},
                                   .gate = {gate.data() + 77, kWidth},
                                   .gate_head_stride = 2 * 77,
                                   .function = function,
                                   .rows = count,
                                   .heads = 3,
                                   .width = 77,
                                   .out_type = ComputeType::kFloat16,
                                   .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation add() {
  return {"add", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                out(backend, some(begin, count, kWidth, 2));
            backend.add(
                {.x = x.data(), .multiplier = 0.3f, .count = count * kWidth, .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation mix_streams() {
  return {"mix_streams", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)), added(backend, some(begin, count)),
                coefficients(backend, some(begin, count, 1, 2));
            const auto out = room_for<float>(backend, count * kWidth);
            backend.mix_streams({.x = x.data(),
                                 .added = added.data(),
                                 .coefficients = coefficients.data(),
                                 .streams = 1,
                                 .inputs = 1,
                                 .rows = count,
                                 .width = kWidth,
                                 .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation connect_streams() {
  return {"connect_streams", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count, 15)), base(backend, some(0, 1, 15, 2)),
                scale(backend, some(0, 1, 3, 3));
            const auto collapse = room_for<float>(backend, count * 3),
                       expand = room_for<float>(backend, count * 12);
            backend.connect_streams({.x = x.data(),
                                     .scale = scale.data(),
                                     .base = base.data(),
                                     .rows = count,
                                     .streams = 3,
                                     .iterations = 4,
                                     .epsilon = 1e-6f,
                                     .collapse = collapse.data(),
                                     .expand = expand.data()});
            return bytes_of(expand);
          }};
}

RowOperation attend_streams() {
  return {"attend_streams", [](Backend& backend, int64_t begin, int64_t count) {
            std::vector<float> planes = some(begin, count);
            const std::vector<float> others = some(begin, count, kWidth, 2);
            planes.insert(planes.end(), others.begin(), others.end());
            const Floats x(backend, planes), weight(backend, some(0, 1, kWidth, 3));
            const auto out = room_for<float>(backend, count * kWidth);
            backend.attend_streams({.x = x.data(),
                                    .weight = weight.data(),
                                    .epsilon = 1e-6f,
                                    .streams = 2,
                                    .rows = count,
                                    .width = kWidth,
                                    .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation match_magnitude() {
  return {"match_magnitude", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                target(backend, some(begin, count, kWidth, 2));
            backend.match_magnitude({.target = target.data(),
                                     .x = x.data(),
                                     .floor = 1e-5f,
                                     .rows = count,
                                     .width = kWidth});
            return bytes_of(x);
          }};
}

RowOperation keep_outliers() {
  return {"keep_outliers", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count));
            backend.keep_outliers({.x = x.data(),
                                   .rows = count,
                                   .width = kWidth - 7,
                                   .row_stride = kWidth,
                                   .deviations = 0.8f});
            return bytes_of(x);
          }};
}

RowOperation combine_rows() {
  return {"combine_rows", [](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)), weights(backend, some(begin, count, 1, 3)),
                out(backend, some(begin, count, kWidth, 2));
            backend.combine_rows({.x = x.data(),
                                  .weights = weights.data(),
                                  .count = count,
                                  .rows = count,
                                  .width = kWidth,
                                  .out = out.data()});
            return bytes_of(out);
          }};
}

RowOperation embed() {
  return {
      "embed", [](Backend& backend, int64_t begin, int64_t count) {
        const auto table = some(0, kRows);
        const Floats out(backend, some(begin, count, kWidth, 2));
        const auto ids = numbers(begin, count);
        const TensorView view{"wpe", DType::kF32, Shape{kRows, kWidth},
                              std::as_bytes(std::span(table))};
        backend.embed(
            {.table = view, .ids = ids, .multiplier = 0.3f, .accumulate = true, .out = out.data()});
        return bytes_of(out);
      }};
}

RowOperation rope(bool interleaved) {
  return {"rope", [interleaved](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                cosines(backend, test::normal(kRows * 30, 2)),
                sines(backend, test::normal(kRows * 30, 3));
            const test::OnBackend<int32_t> positions(backend, numbers(begin, count));
            backend.rope({.x = {x.data(), count, 7, 80, kWidth},
                          .positions = positions.data(),
                          .cos = cosines.data(),
                          .sin = sines.data(),
                          .rotary_dim = 60,
                          .interleaved = interleaved});
            return bytes_of(x);
          }};
}

RowOperation through_cache(KvDType dtype) {
  return {"store_kv and load_kv", [dtype](Backend& backend, int64_t begin, int64_t count) {
            const Floats x(backend, some(begin, count)),
                scales(backend, {0.01f, 0.02f, 0.03f, 0.5f, 1.0f, 0.7f, 0.1f});
            const int64_t elements = count * 7 * 80;
            const auto stored = room_for<std::byte>(backend, elements * bytes_per_element(dtype));
            const auto out = room_for<BF16>(backend, elements);
            backend.store_kv({.x = {x.data(), count, 7, 80, kWidth},
                              .dtype = dtype,
                              .scales = scales.data(),
                              .out = stored.data()});
            backend.load_kv({.x = stored.data(),
                             .dtype = dtype,
                             .scales = scales.data(),
                             .rows = count,
                             .heads = 7,
                             .head_dim = 80,
                             .out_type = ComputeType::kBFloat16,
                             .out = out.data()});
            return bytes_of(out);
          }};
}

const std::vector<RowOperation>& operations() {
  static const std::vector<RowOperation> all{
      norm(false),
      norm(true),
      norm_heads(false),
      norm_heads(true),
      activate(Activation::kSilu, true, 0.0f),
      activate(Activation::kQuickGelu, true, 1.5f),
      activate(Activation::kGelu, false, 0.0f),
      activate(Activation::kGeluTanh, false, 0.0f),
      activate(Activation::kSquaredRelu, false, 0.0f),
      activate(Activation::kXielu, false, 0.0f),
      activate(Activation::kTanh, false, 0.0f),
      gated_norm(false),
      gated_norm(true),
      multiply_gate(GateFunction::kSigmoid),
      multiply_gate(GateFunction::kSilu),
      multiply_gate(GateFunction::kIdentity),
      multiply_gate(GateFunction::kSoftplus),
      add(),
      combine_rows(),
      mix_streams(),
      connect_streams(),
      attend_streams(),
      match_magnitude(),
      keep_outliers(),
      embed(),
      rope(false),
      rope(true),
      through_cache(KvDType::kFp8E4m3),
      through_cache(KvDType::kFloat16),
  };
  return all;
}

TEST_CASE("operations on rows: a row's bytes depend neither on its neighbours nor on the threads") {
  for (const RowOperation& operation : operations()) {
    const Bytes expected = operation.run(*test::make_backend("cpu"), 0, kRows);
    const size_t row = expected.size() / kRows;
    test::for_each_backend([&](Backend& backend) {
      const Bytes whole = operation.run(backend, 0, kRows);
      INFO(operation.what);
      for (const auto& [begin, count] :
           {std::pair<int64_t, int64_t>{0, 1}, {1, 1}, {17, 5}, {56, 3}, {150, 120}, {299, 1}}) {
        INFO("rows " << begin << " to " << begin + count);
        const auto first = whole.begin() + begin * static_cast<int64_t>(row);
        CHECK(operation.run(backend, begin, count) ==
              Bytes(first, first + count * static_cast<int64_t>(row)));
      }
    });
    for (const int threads : {2, 3}) {
      INFO(operation.what << ", " << threads << " threads");
      CHECK(operation.run(*test::make_backend("cpu", threads), 0, kRows) == expected);
    }
  }
}

TEST_CASE("operations on rows: the same bytes on every processor that fuses") {
  for (const RowOperation& operation : operations()) {
    INFO(operation.what);
    Bytes expected;
    for (const int64_t target : test::fusing_targets()) {
      INFO(hwy::TargetName(target));
      const test::OnlyTargets only(target);
      const Bytes bytes = operation.run(*test::make_backend("cpu", 1), 0, kRows);
      if (expected.empty()) expected = bytes;
      CHECK(bytes == expected);
    }
  }
}

}  // namespace
}  // namespace kvcal
