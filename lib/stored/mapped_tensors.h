#pragma once

#include "checkpoint/model_dir.h"

namespace kvcal {

/// Calls act(file, bytes) for the shard that holds the tensor.
template <class Act>
void with_mapping(const ModelDir& model_dir, const TensorView& tensor, const Act& act) {
  for (const SafetensorsFile& shard : model_dir.shards()) {
    const auto file = shard.file().bytes();
    if (tensor.bytes.data() >= file.data() && tensor.bytes.data() < file.data() + file.size())
      act(shard.file(), tensor.bytes);
  }
}

/// Tells the system that the tensor's bytes are no longer needed.
inline void drop_pages(const ModelDir& model_dir, const TensorView& tensor) {
  with_mapping(model_dir, tensor, [](const MappedFile& file, auto bytes) { file.drop(bytes); });
}

}  // namespace kvcal
