#pragma once

#include "quant/e2m1.h"
#include "stored/coded_matrix.h"

namespace kvcal {

/// Names and arithmetic of a form of 4-bit floats (E2M1), two in a byte, the first in the low half.
struct Fp4Args {
  std::string_view codes_name = ".weight_packed";  ///< U8 [out, in / 2]
  std::string_view scale_name = ".weight_scale";   ///< of `group` columns
  int64_t group = 16;
  bool has_exponents = false;         ///< scales are U8 or F8_E8M0 powers of two, else F8_E4M3
  std::string_view global_name = {};  ///< F32, one for the matrix; empty: none
  bool divides_global = false;        ///< scales are divided by it, else multiplied
};
std::unique_ptr<CodedStorage> fp4_codes(const Fp4Args& args);

/// E4M3 codes of `.weight` with a power of two for each 32 columns.
std::unique_ptr<CodedStorage> mxfp8_codes();

/// Matrix of one expert: rows of E2M1 codes with a power of two for each `group` columns. codes:
/// U8, two codes a byte; scales: U8, row-major.
std::unique_ptr<CodedMatrix> mxfp4_matrix(const Shape& shape, const TensorView& codes,
                                          const TensorView& scales, int64_t group);

/// A matrix [out, in] of each of gpt-oss' experts, from `<tensor>_blocks` U8 [experts, out, in /
/// 32, 16] and `<tensor>_scales` U8; none where the file has no such tensors. read: receives the
/// names. Throws Error as CodedStorage::open does. Source: transformers 5.23
/// `convert_moe_packed_tensors`.
std::vector<std::unique_ptr<CodedMatrix>> open_mxfp4_experts(
    const ModelDir& model_dir, const std::string& tensor, std::set<std::string, std::less<>>& read);

/// bitsandbytes: codes of 4 bits with their state beside, and I8 rows.
std::unique_ptr<CodedStorage> bitsandbytes_4bit();
std::unique_ptr<CodedStorage> bitsandbytes_8bit();

}  // namespace kvcal
