#pragma once

#include <atomic>
#include <mutex>

#include "checkpoint/safetensors.h"
#include "export/planned_weights.h"
#include "quant/stacked_slice.h"

namespace kvcal {

/// Source values of one tensor: a tensor of the file, or a slice of one. Several threads take
/// values, each value once. Values that are not contiguous in the file stay in memory from the
/// first take to the last. Borrows from the file.
class SourceValues {
 public:
  /// slice: nullptr for the whole tensor.
  SourceValues(const SafetensorsFile& file, const TensorView& tensor, const StackedSlice* slice);

  /// Runs one pass over all values; tells the system which pages are read, and releases them.
  template <class Act>
  void see_all(const Act& act) const {
    file_.file().will_need(piece_.bytes);
    act(read().view);
    file_.file().drop(piece_.bytes);
  }
  /// Calls begin with all values before the first is taken.
  template <class Begin>
  void prepare(const Begin& begin) {
    std::call_once(is_ready_, [&] {
      values_ = read();
      if (!values_.owned.empty()) file_.file().drop(piece_.bytes);
      begin(values_.view);
    });
  }
  const TensorView& view() const { return values_.view; }
  /// Marks values [first, first + count) as taken. Returns true for the last ones.
  bool done(uint64_t first, uint64_t count);

 private:
  SliceValues read() const;
  void drop_pages(uint64_t first, uint64_t count) const;

  const SafetensorsFile& file_;
  const TensorView& tensor_;
  const StackedSlice* slice_;
  TensorView piece_;  ///< of the file: the tensor, or the expert that the slice is of
  std::once_flag is_ready_;
  SliceValues values_;
  std::atomic<uint64_t> values_left_;
};

/// A tensor whose bytes generate makes on demand (TensorSource::generate).
inline TensorSource generated_source(std::string name, DType dtype, Shape shape,
                                     decltype(TensorSource::generate) generate) {
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .bytes = {},
          .file = {},
          .file_offset = 0,
          .generate = std::move(generate)};
}

/// Writes the shard file as target: with sources, with the tensors that changes renames in the
/// shard, and without those that it replaces. Where nothing changes, the file is copied whole,
/// unless needs_header: then its metadata gets a "format" where it has none.
void write_shard(const SafetensorsFile& file, size_t shard, const std::filesystem::path& target,
                 std::vector<TensorSource> sources, const WeightChanges& changes,
                 const WriteOptions& options, bool needs_header = false);

}  // namespace kvcal
