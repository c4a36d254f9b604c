#include "ranks/layer_extents.h"

#include <algorithm>
#include <array>

#include "core/hash64.h"
#include "core/interrupt.h"
#include "core/page_substitute.h"
#include "core/pages.h"

namespace kvcal {
namespace {

constexpr size_t kHashedAtOnce = size_t{8} << 20;

FileExtent extent_of(const ModelDir& model_dir, const TensorView& tensor) {
  const auto page = static_cast<uint64_t>(PageSubstitute::page_size());
  for (size_t shard = 0; shard < model_dir.shards().size(); ++shard) {
    const auto file = model_dir.shards()[shard].file().bytes();
    if (tensor.bytes.data() < file.data() || tensor.bytes.data() >= file.data() + file.size())
      continue;
    const auto begin = static_cast<uint64_t>(tensor.bytes.data() - file.data());
    return {.shard = shard,
            .begin = begin / page * page,
            .end = (begin + tensor.bytes.size() + page - 1) / page * page};
  }
  KVCAL_CHECK(false);
  return {};
}

}  // namespace

std::vector<FileExtent> layer_extents(const ModelDir& model_dir, const Weights& weights,
                                      int64_t layer) {
  std::vector<FileExtent> all;
  for (const auto& tensor : weights.tensors(layer))
    if (!tensor.view.bytes.empty()) all.push_back(extent_of(model_dir, tensor.view));
  std::ranges::sort(all, {}, [](const FileExtent& one) { return std::pair(one.shard, one.begin); });
  std::vector<FileExtent> merged;
  for (const FileExtent& one : all) {
    if (!merged.empty() && merged.back().shard == one.shard && one.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, one.end);
    } else {
      merged.push_back(one);
    }
  }
  return merged;
}

uint64_t layer_hash(const Weights& weights, int64_t layer) {
  std::array<uint64_t, 2> state{1, 0};
  for (const auto& tensor : weights.tensors(layer)) {
    const auto bytes = tensor.view.bytes;
    for (size_t at = 0; at < bytes.size(); at += kHashedAtOnce) {
      throw_if_interrupted();
      const auto part = bytes.subspan(at, std::min(kHashedAtOnce, bytes.size() - at));
      state[1] = hash64(part);
      state[0] = hash64(std::as_bytes(std::span(state)));
      release_pages(part);
    }
  }
  return std::max(state[0], uint64_t{1});
}

uint64_t layer_size(const Weights& weights, int64_t layer) {
  uint64_t size = 0;
  for (const auto& tensor : weights.tensors(layer)) size += tensor.view.bytes.size();
  return size;
}

}  // namespace kvcal
