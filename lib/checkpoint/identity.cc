#include "checkpoint/identity.h"

#include <algorithm>

#include "core/file.h"
#include "core/sha256.h"

namespace kvcal {
namespace {

constexpr size_t kPart = 512;

void add(const SafetensorsFile& shard, Sha256& hash) {
  const auto bytes = shard.file().bytes();
  hash.update(std::to_string(bytes.size()) + "\n");
  hash.update(bytes.first(shard.data_offset()));
  for (const TensorView& tensor : shard.tensors()) {
    const size_t part = std::min(kPart, tensor.bytes.size());
    hash.update(tensor.bytes.first(part));
    hash.update(tensor.bytes.last(part));
  }
  shard.file().drop(bytes);
}

}  // namespace

std::string sampled_sha256(const ModelDir& model_dir) {
  Sha256 hash;
  hash.update(read_text(model_dir.path() / "config.json"));
  for (const SafetensorsFile& shard : model_dir.shards()) add(shard, hash);
  return hash.hex();
}

}  // namespace kvcal
