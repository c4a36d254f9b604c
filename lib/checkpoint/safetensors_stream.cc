#include "checkpoint/safetensors_stream.h"

#include <algorithm>

#include "core/interrupt.h"

namespace kvcal {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
/// A multiple of every element's bytes.
constexpr size_t kElements = 16;
/// Small enough that the threads finish together.
constexpr size_t kBlockBytes = size_t{128} << 10;

}  // namespace

GeneratedStream::GeneratedStream(FileWriter& writer, const WriteOptions& options, ThreadPool& pool)
    : writer_(writer), options_(options), pool_(pool) {}

void GeneratedStream::add(const TensorSource& tensor) {
  filling_.resize(kBufferBytes);
  const uint64_t size = byte_count(tensor.shape, tensor.dtype);
  for (uint64_t offset = 0; offset < size;) {
    // Blocks of a tensor but the last are whole elements, wherever the tensor before ended.
    const uint64_t room = std::min(kBlockBytes, (kBufferBytes - filled_) / kElements * kElements);
    const auto count = static_cast<size_t>(std::min<uint64_t>(room, size - offset));
    if (count > 0)
      blocks_.push_back({&tensor, offset, std::span(filling_).subspan(filled_, count)});
    filled_ += count;
    offset += count;
    if (kBufferBytes - filled_ < kElements) turn();
  }
}

void GeneratedStream::turn() {
  throw_if_interrupted();
  const std::span<const std::byte> ready = std::span(writing_).first(unwritten_);
  pool_.parallel_for(static_cast<int64_t>(blocks_.size()) + 1, [&](int64_t index, int) {
    if (index == 0) {
      if (!ready.empty()) writer_.write(ready);
      return;
    }
    const Block& block = blocks_[static_cast<size_t>(index - 1)];
    block.tensor->generate(block.offset, block.bytes);
  });
  if (unwritten_ > 0 && options_.written) options_.written(unwritten_);
  filling_.swap(writing_);
  filling_.resize(kBufferBytes);
  unwritten_ = filled_;
  filled_ = 0;
  blocks_.clear();
}

void GeneratedStream::finish() {
  if (filled_ > 0) turn();
  if (unwritten_ > 0) turn();
}

}  // namespace kvcal
