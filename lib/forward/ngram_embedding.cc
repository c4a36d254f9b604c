#include "forward/ngram_embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/text.h"
#include "family/ngram_hashes.h"

namespace kvcal {
namespace {

/// Rows that are read before the pages of the tables are released: each may map 64 KiB.
constexpr size_t kGatheredUntilDrop = 1024;

std::vector<int64_t> numbers_of(const Weights& weights, int64_t layer, Role role) {
  const TensorView tensor = weights.rows(layer, role).parts[0];
  std::vector<int64_t> numbers(tensor.bytes.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), tensor.bytes.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

/// As the file has them, which transformers reads.
NgramHashes hashes_in(const Weights& weights, int64_t layer) {
  NgramHashes hashes{.factors = numbers_of(weights, layer, Role::kNgramFactors),
                     .sizes = numbers_of(weights, layer, Role::kNgramSizes),
                     .offsets = numbers_of(weights, layer, Role::kNgramOffsets)};
  if (std::ranges::any_of(hashes.sizes, [](int64_t size) { return size < 1; }))
    fail("layer ", layer, " has hashes of n-grams with less than 1 row");
  return hashes;
}

/// Rows of the table, for each token of the batch.
std::vector<int64_t> ngram_rows(const NgramConfig& config, const NgramHashes& hashes,
                                const TokenBatch& batch) {
  std::vector<int64_t> rows;
  const auto history = static_cast<size_t>(config.history());
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    std::vector<TokenId> ids(history, static_cast<TokenId>(config.separator));
    if (!batch.ids_before.empty())
      std::copy_n(batch.ids_before.begin() + static_cast<std::ptrdiff_t>(i * history), history,
                  ids.begin());
    const auto first = batch.ids.begin() + segment.q_begin;
    ids.insert(ids.end(), first, first + segment.q_count);
    for (size_t token = 0; token < static_cast<size_t>(segment.q_count); ++token)
      append_ngram_rows(config, hashes, std::span(ids).subspan(token, history + 1), rows);
  }
  return rows;
}

/// The table of a layer in its parts, all but the last of the same number of rows.
class NgramTable {
 public:
  NgramTable(const Weights& weights, int64_t layer) : weights_(weights), layer_(layer) {
    for (int64_t i = 0; i < weights.count(layer, Role::kNgramEmbedding); ++i) {
      if (weights.quantization(layer, Role::kNgramEmbedding, i))
        fail("layer ", layer, " has a quantized table of n-grams, which is not read");
      parts_.push_back(weights.rows(layer, Role::kNgramEmbedding, i).parts[0]);
      rows_ += parts_.back().shape[0];
    }
  }

  /// The rows below each other.
  std::vector<std::byte> gathered(std::span<const int64_t> rows) const {
    const auto bytes = static_cast<size_t>(width()) * element_bytes();
    const int64_t part_rows = parts_[0].shape[0];
    std::vector<std::byte> all(rows.size() * bytes);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < 0 || rows[i] >= rows_)
        fail("a hash of n-grams of layer ", layer_, " gives row ", rows[i], " of ",
             counted(rows_, "row"));
      const TensorView& part = parts_[static_cast<size_t>(rows[i] / part_rows)];
      std::memcpy(all.data() + i * bytes,
                  part.bytes.data() + static_cast<size_t>(rows[i] % part_rows) * bytes, bytes);
      if (i % kGatheredUntilDrop == kGatheredUntilDrop - 1) drop();
    }
    drop();
    return all;
  }
  int64_t width() const { return parts_[0].shape[1]; }
  DType dtype() const { return parts_[0].dtype; }
  std::string_view name() const { return parts_[0].name; }

 private:
  size_t element_bytes() const { return static_cast<size_t>(bits_of_dtype(dtype()) / 8); }
  void drop() const {
    for (int64_t i = 0; i < std::ssize(parts_); ++i)
      weights_.drop(layer_, Role::kNgramEmbedding, i);
  }

  const Weights& weights_;
  int64_t layer_ = 0, rows_ = 0;
  std::vector<TensorView> parts_;
};

}  // namespace

void embed_ngrams(const ModelConfig& config, const Weights& weights, int64_t layer,
                  const TokenBatch& batch, Backend& backend, float* out) {
  const std::vector<int64_t> rows = ngram_rows(config.ngrams, hashes_in(weights, layer), batch);
  const NgramTable table(weights, layer);
  const std::vector<std::byte> bytes = table.gathered(rows);
  std::vector<int32_t> places(rows.size());
  std::iota(places.begin(), places.end(), 0);
  backend.embed({.table = {.name = table.name(),
                           .dtype = table.dtype(),
                           .shape = {std::ssize(rows), table.width()},
                           .bytes = bytes},
                 .ids = places,
                 .out = out});
}

}  // namespace kvcal
