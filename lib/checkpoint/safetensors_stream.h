#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"

namespace kvcal {

/// Writes tensors whose bytes are generated, in two buffers: the threads fill one while the other
/// goes to the file. Borrows all it is given.
class GeneratedStream {
 public:
  GeneratedStream(FileWriter& writer, const WriteOptions& options, ThreadPool& pool);
  /// Appends a tensor; all of it is in the file after finish().
  void add(const TensorSource& tensor);
  void finish();

 private:
  struct Block {
    const TensorSource* tensor = nullptr;
    uint64_t offset = 0;
    std::span<std::byte> bytes;
  };
  /// Fills the blocks that were added while those before them are written.
  void turn();

  FileWriter& writer_;
  const WriteOptions& options_;
  ThreadPool& pool_;
  std::vector<std::byte> filling_, writing_;
  size_t filled_ = 0, unwritten_ = 0;  ///< bytes of either buffer that are in use
  std::vector<Block> blocks_;
};

}  // namespace kvcal
