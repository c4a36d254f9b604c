// Stands for the vendor's matrix library on the simulated device.
#include "kernels/gpu/vendor_matmul.h"

#include <map>
#include <tuple>

#include "quant/half.h"
#include "simulator/simulator.h"

namespace kvcal::gpu {
namespace {

bool has_vendor_matmul = false;
simulator::MakeMatmul make_matmul;

float element(const MatmulProblem& problem, const void* data, int64_t i) {
  const ComputeType type = problem.type;
  if (problem.is_fp8)
    return fp8::decode(static_cast<const uint8_t*>(data)[i], fp8::Format::kE4m3Fn);
  if (type == ComputeType::kFloat32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return type == ComputeType::kBFloat16 ? to_float(BF16{bits}) : to_float(F16{bits});
}

class PlainLoops : public VendorMatmul {
 public:
  std::string name() const override { return "plain loops"; }
  /// As the libraries that choose an algorithm a shape, once: what a problem of the same shape may
  /// differ in is decided before the look-up.
  bool takes(const MatmulProblem& problem) override {
    return has_plain_scales(problem) && is_chosen(problem);
  }
  bool runs_side_by_side() const override { return true; }
  void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) override {
    run_in_fixed_rows(stream, memory, problem, 16,
                      [&](const MatmulProblem& part) { multiply(stream, part); });
    if (problem.bias) add_bias(stream, problem);
  }

 private:
  using Key = std::tuple<bool, ComputeType, ComputeType, int64_t, int64_t, int64_t, bool, bool>;

  /// FP8 as the libraries that have it: a scale a matrix, no bias.
  static bool has_plain_scales(const MatmulProblem& problem) {
    const ProductScales& scales = problem.scales;
    return !problem.is_fp8 || (!scales.per_row && !scales.per_feature && !problem.bias);
  }
  bool is_chosen(const MatmulProblem& problem) {
    const Key key{problem.is_fp8,     problem.type,           problem.out_type,
                  problem.in,         problem.out_features,   problem.out_stride,
                  problem.accumulate, problem.bias != nullptr};
    const auto [entry, is_new] = chosen_.try_emplace(key);
    if (is_new) entry->second = problem.in % (problem.is_fp8 ? 16 : 8) == 0;
    return entry->second;
  }

  static void multiply(Stream& stream, const MatmulProblem& problem) {
    stream.handle->push(
        [problem] {
          for (int64_t row = 0; row < problem.rows; ++row)
            for (int64_t n = 0; n < problem.out_features; ++n) {
              double sum = 0.0;
              for (int64_t k = 0; k < problem.in; ++k)
                sum += static_cast<double>(element(problem, problem.x, row * problem.in + k)) *
                       element(problem, problem.weight, n * problem.in + k);
              if (problem.scales.x) sum *= *problem.scales.x;
              if (problem.scales.weight) sum *= *problem.scales.weight;
              write(problem, row, n, sum);
            }
        },
        true);
  }

  static void write(const MatmulProblem& problem, int64_t row, int64_t n, double sum) {
    void* const at = problem.out_row(row);
    if (problem.out_type == ComputeType::kBFloat16) {
      static_cast<BF16*>(at)[n] = to_bf16(static_cast<float>(sum));
      return;
    }
    float& out = static_cast<float*>(at)[n];
    out = static_cast<float>(problem.accumulate ? out + sum : sum);
  }

  std::map<Key, bool> chosen_;
};

}  // namespace

OpenedMatmul open_vendor_matmul(const MatmulOptions& options) {
  if (make_matmul) return {.matmul = make_matmul(options), .problem = {}};
  if (!has_vendor_matmul) return {.matmul = nullptr, .problem = "plain loops were not found"};
  return {.matmul = std::make_unique<PlainLoops>(), .problem = {}};
}

namespace simulator {
void set_vendor_matmul(bool exists) {
  has_vendor_matmul = exists;
}
void set_vendor_matmul(MakeMatmul make) {
  make_matmul = std::move(make);
}
}  // namespace simulator

}  // namespace kvcal::gpu
