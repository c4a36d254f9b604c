#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/row_decoder.h"
#include "core/tensor.h"
#include "quant/quant_args.h"
#include "stored/module_tensors.h"
#include "stored/packed_tensors.h"

namespace kvcal {

/// A matrix [out, in] that a checkpoint stores as codes and scales, and that decodes to code ×
/// scale in float32, not rounded further. Borrows from the ModelDir.
class CodedMatrix : public RowDecoder {
 public:
  /// codes: the tensor with the codes, or an expert's part of it. scales: what else decode reads.
  CodedMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales);

  /// Why compressed-tensors cannot hold the codes, for messages; empty: it can, and the two below
  /// may be called.
  virtual std::string packing_problem() const { return "compressed-tensors has no such codes"; }
  /// The codes in compressed-tensors' words.
  virtual QuantArgs packed_args() const;
  /// Tensors in which compressed-tensors holds the chosen rows under module's name, with the same
  /// codes. args: packed_args(). They borrow from this.
  virtual std::vector<TensorSource> packed_tensors(const std::string& module, const QuantArgs& args,
                                                   const RowChoice& rows) const;

  const Shape& shape() const { return shape_; }
  int64_t rows() const { return shape_[0]; }
  int64_t width() const override { return shape_[1]; }
  const TensorView& codes() const { return codes_; }
  /// Scales, zero points and the order of groups.
  std::span<const TensorView> scales() const { return scales_; }
  /// Bytes of all tensors in the file.
  uint64_t stored_bytes() const;

 protected:
  TensorView codes_;
  std::vector<TensorView> scales_;

 private:
  Shape shape_;
};

/// The way in which all weights of one scheme are stored.
class CodedStorage {
 public:
  virtual ~CodedStorage() = default;
  /// Name of a tensor that every module of the scheme has, and no 16-bit one: ".weight_packed".
  virtual std::string_view codes_name() const = 0;
  /// Codes of one module. Throws Error naming the tensor that is missing, misshapen or unreadable.
  virtual std::unique_ptr<CodedMatrix> open(ModuleTensors& tensors) const = 0;
};

/// Value at index of F32, F16, BF16, F8_E4M3, F8_E8M0 or U8 (a power of two, E8M0 too), from bytes
/// of any alignment.
float scale_at(const TensorView& scales, int64_t index);
/// values[i] = scale_at(scales, first + i).
void scales_at(const TensorView& scales, int64_t first, std::span<float> values);
/// 32-bit integer at index, of any alignment.
int32_t int32_at(const TensorView& tensor, int64_t index);

/// Throws Error where a scale is zero, negative, NaN or infinite. scales: as scale_at reads.
void check_scales(const TensorView& scales);

}  // namespace kvcal
