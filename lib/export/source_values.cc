#include "export/source_values.h"

#include <algorithm>
#include <memory>

#include "core/file.h"
#include "export/checkpoint_copy.h"

namespace kvcal {
namespace {

/// A read may map as much around the page as the page cache keeps contiguous: a huge page.
constexpr uint64_t kMappedAround = uint64_t{2} << 20;

/// A tensor under another name: copied by range where it is contiguous, else assembled on demand.
TensorSource renamed_source(const RenamedTensor& copy, const SafetensorsFile& file) {
  if (!copy.slice || copy.slice->is_contiguous()) {
    TensorSource range =
        source_of(file, copy.slice ? values_of(*copy.source, *copy.slice).view : *copy.source);
    range.name = copy.name;
    return range;
  }
  const auto values = std::make_shared<SourceValues>(file, *copy.source, copy.slice);
  const auto size = static_cast<uint64_t>(bits_of_dtype(copy.source->dtype) / 8);
  return generated_source(copy.name, copy.source->dtype, copy.shape(),
                          [values, size](uint64_t offset, std::span<std::byte> bytes) {
                            values->prepare([](const TensorView&) {});
                            std::ranges::copy(values->view().bytes.subspan(offset, bytes.size()),
                                              bytes.begin());
                            values->done(offset / size, bytes.size() / size);
                          });
}

}  // namespace

SourceValues::SourceValues(const SafetensorsFile& file, const TensorView& tensor,
                           const StackedSlice* slice)
    : file_(file),
      tensor_(tensor),
      slice_(slice),
      piece_(slice ? expert_of(tensor, slice->index, slice->experts) : tensor),
      values_left_(element_count(slice ? shape_of(*slice, tensor.shape) : tensor.shape)) {}

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

void write_shard(const SafetensorsFile& file, size_t shard, const std::filesystem::path& target,
                 std::vector<TensorSource> sources, const WeightChanges& changes,
                 const WriteOptions& options, bool needs_header) {
  for (const RenamedTensor& copy : changes.renamed)
    if (copy.shard == shard) sources.push_back(renamed_source(copy, file));
  const auto is_replaced = [&](const TensorView& tensor) {
    return changes.replaced.contains(tensor.name);
  };
  if (!needs_header && sources.empty() && file.is_whole() &&
      std::ranges::none_of(file.tensors(), is_replaced))
    return kvcal::copy_file(file.file().path(), target);
  for (const TensorView& tensor : file.tensors())
    if (!is_replaced(tensor)) sources.push_back(source_of(file, tensor));
  write_safetensors(target, std::move(sources), metadata_of(file), options);
}

}  // namespace kvcal
