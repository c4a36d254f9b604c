#include "stored/module_tensors.h"

#include <algorithm>

namespace kvcal {
namespace {

/// Dimensions without the ones at the end.
std::vector<int64_t> trimmed(std::vector<int64_t> dims) {
  while (!dims.empty() && dims.back() == 1) dims.pop_back();
  return dims;
}

std::string names_of(std::initializer_list<DType> dtypes) {
  std::ostringstream text;
  size_t at = 0;
  for (const DType dtype : dtypes)
    text << (at++ == 0 ? "" : at == dtypes.size() ? " or " : ", ") << dtype;
  return text.str();
}

}  // namespace

bool ModuleTensors::has(std::string_view end) const {
  return model_dir_.find(module_ + std::string(end)) != nullptr;
}

const TensorView* ModuleTensors::find(std::string_view end, std::initializer_list<DType> dtypes) {
  const std::string name = module_ + std::string(end);
  const TensorView* tensor = model_dir_.find(name);
  if (!tensor) return nullptr;
  read_.insert(name);
  if (std::ranges::find(dtypes, tensor->dtype) == dtypes.end())
    fail("unreadable: ", name, " is ", tensor->dtype, ", expected ", names_of(dtypes));
  return tensor;
}

const TensorView& ModuleTensors::need(std::string_view end, std::initializer_list<DType> dtypes,
                                      size_t rank) {
  const TensorView* tensor = find(end, dtypes);
  if (!tensor) fail("missing: ", module_, end, " of the quantized weight");
  if (tensor->shape.rank() != rank || element_count(tensor->shape) == 0)
    fail("misshapen: ", tensor->name, " is ", tensor->shape, ", expected ", rank, " dimensions");
  return *tensor;
}

const TensorView& ModuleTensors::need(std::string_view end, std::initializer_list<DType> dtypes,
                                      const Shape& shape) {
  const TensorView* tensor = find(end, dtypes);
  if (!tensor) fail("missing: ", module_, end, " ", shape, " of the quantized weight");
  if (trimmed(tensor->shape.dims) != trimmed(shape.dims)) fail_shape(*tensor, shape);
  return *tensor;
}

void ModuleTensors::pass(std::string_view end) {
  const std::string name = module_ + std::string(end);
  if (model_dir_.find(name)) read_.insert(name);
}

void fail_shape(const TensorView& tensor, const Shape& expected) {
  fail("misshapen: ", tensor.name, " is ", tensor.shape, ", expected ", expected);
}

}  // namespace kvcal
