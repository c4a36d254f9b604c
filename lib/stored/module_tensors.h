#pragma once

#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"

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

/// Throws Error of a tensor: "misshapen: NAME is [2, 3], expected [3, 2]".
[[noreturn]] void fail_shape(const TensorView& tensor, const Shape& expected);

/// Dtypes of scales that are computed from.
inline constexpr std::initializer_list<DType> kFloats{DType::kF32, DType::kF16, DType::kBF16};

}  // namespace kvcal
