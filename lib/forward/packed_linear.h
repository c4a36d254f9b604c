#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

namespace kvcal {

/// Float32 values beside a layer's matrices. They are uploaded when an operation first needs them,
/// because packing may run in another thread, which may use the backend only for matrices.
class PackedValues {
 public:
  PackedValues() = default;
  PackedValues(std::vector<float> values, Backend& backend)
      : values_(std::move(values)), backend_(&backend) {}

  bool exists() const { return !values_.empty() || sent_.size() > 0; }
  /// In backend memory; null where there are none.
  const float* get() const {
    if (!values_.empty()) {
      sent_ = upload<float>(values_, *backend_);
      values_ = {};
    }
    return sent_.as<float>();
  }

 private:
  mutable std::vector<float> values_;  ///< until they are uploaded
  mutable Buffer sent_;
  Backend* backend_ = nullptr;
};

/// Output rows of a Linear whose inputs are quantized in the same way.
struct QuantizedRows {
  /// Result of pack_fp8 where codes are multiplied, else numbers of type.
  std::unique_ptr<PackedMatrix> matrix;
  bool multiplies_codes = false;
  int64_t first = 0;                         ///< among the Linear's rows
  ComputeType type = ComputeType::kFloat32;  ///< of the input before it is quantized
  InputQuantization input = InputQuantization::kNone;
  PackedValues input_scale;  ///< one, kStatic
  int64_t group = 0;         ///< kDynamicGroup: values that share a scale
};

struct PackedLinear {
  /// [out, in]; null where the layer has no such Linear. With quantized inputs only the sizes
  /// count.
  std::unique_ptr<PackedMatrix> matrix;
  PackedValues bias;     ///< [out], or none
  PackedValues factors;  ///< [out] of the outputs with their bias, or none
  std::vector<QuantizedRows> quantized =
      {};  ///< all rows, in order; empty: inputs are not quantized
};

/// Rows of a matrix to pack: numbers, or codes with a scale a row.
struct LinearRows {
  WeightRows rows;
  const LinearQuantization* quantization = nullptr;
};

/// The rows of a role's weight for a product whose input is quantized so: codes where the product
/// can multiply them, else numbers.
LinearRows linear_rows(const Weights& weights, const LinearQuantization* quantization,
                       int64_t layer, Role role, int64_t index = 0);

/// Packs all rows, one below the other, for every backend of the group, in their order. Rows of
/// codes must be those of linear_rows.
std::vector<PackedLinear> pack_linear(std::span<const LinearRows> rows, PackGroup& group,
                                      ComputeType type);

/// The Linears of layers that are made for one backend after the other: the first one's turn reads
/// and packs them for all, the others' take what it packed for them, in the same order.
class SharedLinears {
 public:
  explicit SharedLinears(PackGroup& group) : group_(group) {}

  /// The turn of the backend of that index begins; index 0 comes first.
  void begin(size_t index) {
    turn_ = index;
    next_ = 0;
  }
  PackGroup& group() const { return group_; }
  Backend& backend() const { return *group_.backends()[turn_]; }
  /// The next Linear of the backend. make() returns pack_linear's result.
  template <class Make>
  PackedLinear take(const Make& make) {
    if (turn_ == 0) packed_.push_back(make());
    return std::move(packed_.at(next_++).at(turn_));
  }

 private:
  PackGroup& group_;
  size_t turn_ = 0, next_ = 0;
  std::vector<std::vector<PackedLinear>> packed_;  ///< [Linears, backends]
};

/// Buffers of products with quantized inputs. They grow on demand, so a product of a size that ran
/// before allocates nothing.
struct ProductScratch {
  Buffer codes;   ///< [rows, in_features] FP8
  Buffer scales;  ///< [rows], or [rows, groups] float32
  Buffer values;  ///< [rows, in_features]: dequantized codes
  Buffer inner;   ///< [rows, out_features] float32, before an activation or another product
};

/// out = linear(x), or out += linear(x). Quantized inputs become FP8 codes first. They are
/// multiplied as codes where the weight is in codes, else they are dequantized.
struct ProductArgs {
  const void* x = nullptr;  ///< [rows, in_features] of the type that the layer was packed for
  const PackedLinear& linear;
  bool accumulate = false;
  int64_t rows = 0;
  float* out = nullptr;  ///< [rows, out_features]
  bool is_decoding = false;
  ProductScratch* scratch = nullptr;  ///< needed where the input is quantized
};
void multiply(Backend& backend, const ProductArgs& args);

/// Writes float32 x, [rows, width], to out, of type.
void convert(Backend& backend, const float* x, int64_t rows, int64_t width, ComputeType type,
             void* out);

/// down(activation(gate) * up), or down(activation(up)).
struct PackedMlp {
  PackedLinear in;  ///< [2 * width, hidden]: gate, then up; [width, hidden] without a gate
  PackedLinear down;
  bool gated = true;
  int64_t width = 0;
  ActivationFunction activation;
  PackedValues inner_norm = {};  ///< [width] of the activated rows, or none
  /// Of the gate only what exceeds its mean by so many standard deviations is kept; nullopt: all.
  std::optional<float> deviations;
};

}  // namespace kvcal
