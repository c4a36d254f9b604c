// The pages of a checkpoint's files that weights are read from.
#include <algorithm>

#include "backend/backend.h"
#include "core/interrupt.h"
#include "stored/coded_matrix.h"
#include "stored/mapped_tensors.h"
#include "stored/weights.h"

namespace kvcal {

void Weights::will_need(int64_t layer) const {
  if (layer >= static_cast<int64_t>(layers_.size())) return;
  for (const auto& [key, bound] : layers_[static_cast<size_t>(layer)]) {
    throw_if_interrupted();
    const auto fetch = [&](const TensorView& tensor) {
      with_mapping(*model_dir_, tensor,
                   [](const MappedFile& file, auto bytes) { file.will_need(bytes); });
    };
    fetch(bound.view);
    if (bound.coded) std::ranges::for_each(bound.coded->scales(), fetch);
  }
}

void Weights::drop(const TensorView& tensor) const {
  drop_pages(*model_dir_, tensor);
}

void Weights::drop(const Bound& bound) const {
  drop(bound.view);
  if (!bound.coded) return;
  for (const TensorView& scale : bound.coded->scales()) drop(scale);
}

void Weights::drop(int64_t layer) const {
  for (const auto& [key, bound] : layers_.at(static_cast<size_t>(layer))) drop(bound);
}

void Weights::drop(int64_t layer, Role role, int64_t index) const {
  if (const Bound* bound = holder(layer, role, index).first) drop(*bound);
}

void Weights::drop(Role role) const {
  for (int64_t i = 0; model_.contains({role, i}); ++i) drop(model_tensor(role, i));
}

uint64_t Weights::read_bytes(const Bound& bound, const Backend& backend) {
  const uint64_t mapped = bound.coded ? bound.coded->stored_bytes() : bound.view.bytes.size();
  if (bound.coded || bound.block_scale || bound.quantization)
    return mapped + backend.decoded_bytes(bound.view.shape[0], bound.view.shape[1]);
  // transposed and deinterleaved make one copy each.
  if (bound.layout == Layout::kOutIn) return mapped;
  return mapped * (bound.layout == Layout::kInOutInterleaved ? 3 : 2);
}

uint64_t Weights::largest_read_bytes(const Backend& backend) const {
  uint64_t largest = 0;
  for (const Table& layer : layers_)
    for (const auto& [key, bound] : layer) largest = std::max(largest, read_bytes(bound, backend));
  return largest;
}

}  // namespace kvcal
