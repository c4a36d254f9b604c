#include "export/source_values.h"

#include <algorithm>

namespace kvcal {
namespace {

/// A read may map as much around the page as the page cache keeps contiguous: a huge page.
constexpr uint64_t kMappedAround = uint64_t{2} << 20;

}  // namespace

SourceValues::SourceValues(const SafetensorsFile& file, const TensorView& tensor,
                           const StackedSlice* slice)
    : file_(file),
      tensor_(tensor),
      slice_(slice),
      shape_(slice ? shape_of(*slice, tensor.shape) : tensor.shape),
      piece_(slice ? expert_of(tensor, slice->index, slice->experts) : tensor),
      values_left_(element_count(shape_)) {}

SliceValues SourceValues::read() const {
  return slice_ ? values_of(tensor_, *slice_) : SliceValues{.view = tensor_, .owned = {}};
}

bool SourceValues::done(uint64_t first, uint64_t count) {
  if (values_.owned.empty()) drop_pages(first, count);
  if (values_left_.fetch_sub(count) != count) return false;
  values_ = {};
  return true;
}

/// Releases the pages of values that were read, and those that the system mapped around them.
void SourceValues::drop_pages(uint64_t first, uint64_t count) const {
  const auto size = static_cast<uint64_t>(bits_of_dtype(tensor_.dtype) / 8);
  const std::span<const std::byte> bytes = values_.view.bytes;
  const uint64_t begin = first * size - std::min(first * size, kMappedAround);
  const uint64_t end = std::min<uint64_t>((first + count) * size + kMappedAround, bytes.size());
  file_.file().drop(bytes.subspan(begin, end - begin));
}

}  // namespace kvcal
