#pragma once

#include <optional>

#include "quant/packed_bits.h"
#include "stored/coded_matrix.h"

namespace kvcal {

/// Position of the scale of each element: one for `group` columns, or as g_idx says.
struct ColumnGroups {
  int64_t groups = 1;               ///< in a row
  int64_t group = 0;                ///< columns of each, but the last
  std::optional<TensorView> index;  ///< I32 [in]: group of each column
};

/// Throws Error where g_idx names a group that is not there.
void check_index(const ColumnGroups& groups);

/// Integers: (code - zero point) × scale. Codes and zero points are unsigned here; signed ones are
/// moved by 2^(bits - 1).
class IntegerMatrix : public CodedMatrix {
 public:
  IntegerMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales, ColumnGroups groups)
      : CodedMatrix(std::move(shape), std::move(codes), std::move(scales)),
        groups_(std::move(groups)) {}
  void decode(int64_t first, int64_t count, float* out) const final;
  std::string packing_problem() const final { return ""; }
  /// Symmetric where all zero points are in the middle; with an order of activations where groups
  /// are not contiguous.
  QuantArgs packed_args() const final;
  /// Those of the format pack-quantized: weight_packed I32, weight_scale in the dtype of the
  /// source's scales, weight_shape, and where args need them weight_zero_point and weight_g_idx.
  /// Source: compressed-tensors 0.20 `PackedQuantizationCompressor`, and 0.13 for g_idx.
  std::vector<TensorSource> packed_tensors(const std::string& module, const QuantArgs& args,
                                           const RowChoice& rows) const final;

  virtual int bits() const = 0;
  const ColumnGroups& groups() const { return groups_; }
  /// Part of a matrix of codes.
  struct Block {
    int64_t row = 0, rows = 0;
    int64_t column = 0, columns = 0;  ///< column is a multiple of kBlockColumns
  };
  static constexpr int64_t kBlockColumns = 256;
  /// Codes of a block, [rows, columns].
  virtual void read_block(const Block& block, uint8_t* codes) const = 0;
  /// Zero points of rows, [count, groups].
  virtual void read_zeros(int64_t first, int64_t count, int32_t* zeros) const = 0;
  /// Scales of rows, [count, groups].
  virtual void read_scales(int64_t first, int64_t count, float* scales) const = 0;

 private:
  /// One row of a block. index: of all columns, or none.
  void scale_row(const Block& block, const uint8_t* codes, const int32_t* zeros,
                 const float* scales, std::span<const int32_t> index, float* out) const;
  bool has_middle_zeros() const;
  TensorSource codes_source(std::string name, const RowChoice& rows) const;
  TensorSource scales_source(std::string name, const RowChoice& rows) const;
  TensorSource zeros_source(std::string name, const RowChoice& rows) const;

  ColumnGroups groups_;
};

/// compressed-tensors' packed integers of 1 to 8 bits, and plain I8.
struct PackedIntegerArgs {
  int bits = 8;
  bool is_symmetric = true;
  int64_t group = 0;       ///< columns that share a scale; 0: a row, or the whole matrix
  bool is_tensor = false;  ///< one scale for the whole matrix
  bool is_packed = true;   ///< false: I8 in .weight
};
CodeFormat packed_integers(const PackedIntegerArgs& args);

/// Tensors of GPTQ's and AWQ's layouts.
inline constexpr std::string_view kQWeight = ".qweight", kQZeros = ".qzeros", kQScales = ".scales";

/// GPTQ's and AWQ's layouts: [in, out], packed along in or along out.
struct GptqArgs {
  int bits = 4;
  int64_t group = 0;            ///< 0: one for all columns
  bool stores_less_one = true;  ///< zero points are stored less 1, modulo 2^bits
  bool needs_index = false;     ///< g_idx must be there
};
CodeFormat gptq_integers(const GptqArgs& args);
CodeFormat awq_integers(int64_t group);
/// AWQ's layout under Quark's names: `.weight`, `.weight_scale`, `.weight_zero_point`. is_signed:
/// codes and zero points are in two's complement.
CodeFormat quark_integers(int64_t group, bool is_signed);
/// AWQ's version gemv: [out, in], packed along in; zero points are packed along the groups, and
/// both are padded.
CodeFormat awq_gemv_integers(int64_t group);

}  // namespace kvcal
