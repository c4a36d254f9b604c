#include "stored/model_hash.h"

#include <algorithm>
#include <array>

#include "core/hash64.h"
#include "core/interrupt.h"
#include "core/pages.h"

namespace kvcal {
namespace {

/// Rows between two releases of pages: each may map 64 KiB.
constexpr int64_t kRowsUntilRelease = 1024;

class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::array<uint64_t, 2> both{state_, hash64(bytes)};
    state_ = hash64(std::as_bytes(std::span(both)));
  }
  uint64_t value() const { return std::max(state_, uint64_t{1}); }

 private:
  uint64_t state_ = 1;
};

void add_rows(const TensorView& table, const std::set<TokenId>& ids, Hash& hash) {
  const int64_t rows = table.shape[0];
  const size_t width = table.bytes.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
  int64_t count = 0;
  for (const TokenId id : ids) {
    if (id < 0 || id >= rows) continue;  // refused where it is embedded
    hash.add(table.bytes.subspan(static_cast<size_t>(id) * width, width));
    if (++count % kRowsUntilRelease != 0) continue;
    throw_if_interrupted();
    release_pages(table.bytes);
  }
}

}  // namespace

uint64_t model_hash(const Weights& weights, const std::set<TokenId>& ids) {
  Hash hash;
  for (const Weights::LayerTensor& tensor : weights.model_tensors()) {
    if (tensor.role == Role::kLmHead || tensor.role == Role::kLmHeadBias) continue;
    const bool is_table =
        tensor.role == Role::kEmbedding || tensor.role == Role::kLayerInputEmbedding;
    if (is_table && !tensor.is_scale)
      add_rows(tensor.view, ids, hash);
    else
      hash.add(tensor.view.bytes);
    release_pages(tensor.view.bytes);
  }
  return hash.value();
}

}  // namespace kvcal
