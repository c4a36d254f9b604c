#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pack_shape.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"
#include "core/tensor.h"
#include "quant/half.h"
#include "quant/quant_scheme.h"
#include "quant/stacked_slice.h"

namespace kvcal {

/// The tensors of one module: finds them by the end of their names, and records which were read.
class ModuleTensors {
 public:
  /// module: name without ".weight". read: receives the names. Both borrowed.
  ModuleTensors(const ModelDir& model_dir, const std::string& module,
                std::set<std::string, std::less<>>& read)
      : model_dir_(model_dir), module_(module), read_(read) {}

  const std::string& module() const { return module_; }
  bool has(std::string_view end) const;
  /// nullptr where the module has no such tensor. Throws Error for another dtype.
  const TensorView* find(std::string_view end, std::initializer_list<DType> dtypes);
  /// Throws Error where the tensor is missing, or its dtype or rank is another.
  const TensorView& need(std::string_view end, std::initializer_list<DType> dtypes, size_t rank);
  /// Also throws Error for another shape. Dimensions of 1 at the end may be left out.
  const TensorView& need(std::string_view end, std::initializer_list<DType> dtypes,
                         const Shape& shape);
  /// Counts a tensor as read that no value depends on; none is fine.
  void pass(std::string_view end);

 private:
  const ModelDir& model_dir_;
  const std::string& module_;
  std::set<std::string, std::less<>>& read_;
};

/// The number of parts of that size, of which the last may be smaller.
constexpr int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// Throws Error of a tensor: "misshapen: NAME is [2, 3], expected [3, 2]".
[[noreturn]] void fail_shape(const TensorView& tensor, const Shape& expected);

/// Dtypes of scales that are computed from.
inline constexpr std::initializer_list<DType> kFloats{DType::kF32, DType::kF16, DType::kBF16};

/// Source of a tensor whose first dimension counts rows. fill makes rows [begin, begin + count);
/// several threads call it at once.
TensorSource rows_source(std::string name, DType dtype, Shape shape,
                         std::function<void(int64_t begin, int64_t count, std::byte* out)> fill);

/// Source of the chosen rows of a tensor [rows, ..], which the view of a file holds contiguously.
TensorSource chosen_rows(std::string name, DType dtype, const TensorView& tensor,
                         const RowChoice& rows);

/// Source of a small tensor, which owns its bytes.
TensorSource small_source(std::string name, DType dtype, Shape shape, std::vector<std::byte> all);

/// The tensor weight_shape of a packed weight: I64 [2].
TensorSource shape_source(std::string name, const std::array<int64_t, 2>& shape);

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
struct CodeFormat {
  /// Name of a tensor that every module of the scheme has, and no 16-bit one: ".weight_packed".
  std::string_view codes_name;
  /// Codes of one module. Throws Error naming the tensor that is missing, misshapen or unreadable.
  std::function<std::unique_ptr<CodedMatrix>(ModuleTensors&)> open;
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

/// Names and arithmetic of stored 4-bit floats (E2M1), two in a byte, the first in the low half.
struct Fp4Args {
  std::string_view codes_name = ".weight_packed";  ///< U8 [out, in / 2]
  std::string_view scale_name = ".weight_scale";   ///< of `group` columns
  int64_t group = 16;
  bool has_exponents = false;         ///< scales are U8 or F8_E8M0 powers of two, else F8_E4M3
  std::string_view global_name = {};  ///< F32, one for the matrix; empty: none
  bool divides_global = false;        ///< scales are divided by it, else multiplied
};
CodeFormat fp4_codes(const Fp4Args& args);

/// E4M3 codes of `.weight` with a power of two for each 32 columns.
CodeFormat mxfp8_codes();

/// Floats of 6 bits.
enum class Fp6 : uint8_t { kE2m3, kE3m2 };

/// Codes U8 [out, in · 3 / 4] with a power of two for each 32 columns.
CodeFormat mxfp6_codes(std::string_view codes_name = ".weight_packed", Fp6 type = Fp6::kE2m3);

/// AWQ's version gemv_fast: 4-bit codes in the order of its kernel, and F16 products of scale and
/// zero point, which are added.
CodeFormat awq_gemv_fast_codes(int64_t group);

/// ModelOpt's INT4 of `.weight` U8 [out / 2, in], two rows in a byte, with a scale for `group`
/// columns. rounds_to_fp8: weights are E4M3 codes times `.weight_scale_2`, nearest to those.
CodeFormat modelopt_int4_codes(int64_t group, bool rounds_to_fp8);

/// codes, whose columns are multiplied by `.pre_quant_scale` [in] where the module has one.
CodeFormat with_input_scale(CodeFormat codes);

/// Matrix of one expert: rows of E2M1 codes with a power of two for each `group` columns. codes:
/// U8, two codes a byte; scales: U8, row-major.
std::unique_ptr<CodedMatrix> mxfp4_matrix(const Shape& shape, const TensorView& codes,
                                          const TensorView& scales, int64_t group);

/// A matrix [out, in] of each of gpt-oss' experts, from `<tensor>_blocks` U8 [experts, out, in /
/// 32, 16] and `<tensor>_scales` U8; none where the file has no such tensors. read: receives the
/// names. Throws Error as CodeFormat::open does. Source: transformers 5.23
/// `convert_moe_packed_tensors`.
std::vector<std::unique_ptr<CodedMatrix>> open_mxfp4_experts(
    const ModelDir& model_dir, const std::string& tensor, std::set<std::string, std::less<>>& read);

/// bitsandbytes: codes of 4 bits with their state beside, and I8 rows.
CodeFormat bitsandbytes_4bit();
CodeFormat bitsandbytes_8bit();

}  // namespace kvcal
