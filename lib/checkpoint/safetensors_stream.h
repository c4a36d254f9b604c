#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"

namespace kvcal {

/// Writes generated tensors through two buffers: the threads fill one while the other is written to
/// the file. Borrows its arguments.
class GeneratedStream {
 public:
  GeneratedStream(FileWriter& writer, const WriteOptions& options, ThreadPool& pool);
  /// Appends a tensor; finish() completes it in the file.
  void add(const TensorSource& tensor);
  void finish();

 private:
  struct Block {
    const TensorSource* tensor = nullptr;
    uint64_t offset = 0;
    std::span<std::byte> bytes;
  };
  /// Fills the added blocks while the blocks before them are written.
  void turn();

  FileWriter& writer_;
  const WriteOptions& options_;
  ThreadPool& pool_;
  std::vector<std::byte> filling_, writing_;
  size_t filled_ = 0, unwritten_ = 0;  ///< used bytes of the two buffers
  std::vector<Block> blocks_;
};

}  // namespace kvcal
