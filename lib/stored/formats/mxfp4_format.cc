#include "core/text.h"
#include "stored/coded_matrix.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

constexpr int64_t kMxGroup = 32, kBlockBytes = kMxGroup / 2;

/// Only the stacked experts are quantized.
ModuleSchemes read_mxfp4(const QuantizationConfig& source) {
  check_keys(source, split("quant_method modules_to_not_convert dequantize dtype", ' '));
  return nullptr;
}

/// Part of a tensor that stacks experts: one expert's bytes.
TensorView part_of(const TensorView& tensor, int64_t expert, Shape shape) {
  TensorView part = tensor;
  const size_t bytes = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
  part.shape = std::move(shape);
  part.bytes = tensor.bytes.subspan(static_cast<size_t>(expert) * bytes, bytes);
  return part;
}

}  // namespace

std::vector<std::unique_ptr<CodedMatrix>> open_mxfp4_experts(
    const ModelDir& model_dir, const std::string& tensor,
    std::set<std::string, std::less<>>& read) {
  ModuleTensors tensors(model_dir, tensor, read);
  std::vector<std::unique_ptr<CodedMatrix>> experts;
  if (!tensors.has("_blocks")) return experts;
  const TensorView& blocks = tensors.need("_blocks", {DType::kU8}, 4);
  const int64_t count = blocks.shape[0], out = blocks.shape[1], groups = blocks.shape[2];
  if (blocks.shape[3] != kBlockBytes) fail_shape(blocks, {count, out, groups, kBlockBytes});
  const TensorView& scales = tensors.need("_scales", {DType::kU8}, Shape{count, out, groups});
  check_scales(scales);
  for (int64_t i = 0; i < count; ++i)
    experts.push_back(mxfp4_matrix({out, groups * kMxGroup},
                                   part_of(blocks, i, {out, groups * kBlockBytes}),
                                   part_of(scales, i, {out, groups}), kMxGroup));
  return experts;
}

extern constinit const StoredFormat kMxfp4Format{
    .name = "mxfp4",
    .method = "mxfp4",
    .read_schemes = read_mxfp4,
    .stacks_experts = [](const QuantizationConfig&) { return true; },
    .open_stacked = open_mxfp4_experts};

}  // namespace kvcal
