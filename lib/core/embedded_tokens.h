#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace kvcal {

/// Positions of a token in time, height and width (M-RoPE). Those of text are one number.
using TokenPlace = std::array<int32_t, 3>;

/// What the vision tower of a multimodal model puts into one sample in place of embeddings of text.
/// Rows are views of a mapped file, so that samples take memory only while they are embedded.
struct EmbeddedTokens {
  std::vector<int32_t> positions;  ///< [embedded], ascending: the tokens that are not text
  std::vector<int32_t> images;     ///< [embedded], ascending: the number of each one's image
  /// [embedded, hidden_size], F32, F16 or BF16: the residual stream before the first layer.
  TensorView rows;
  /// By layer: [embedded, hidden_size], added to the residual stream behind it.
  std::map<int64_t, TensorView> injected;
  std::vector<TokenPlace> places;  ///< [tokens]; empty: each token's number in the sample
  std::string model_type;          ///< of the checkpoint whose tower made the rows
  /// Layers in which transformers let tokens of an image see all of it, ascending; nullopt: not
  /// known.
  std::optional<std::vector<int64_t>> seen_whole_in;
  std::shared_ptr<const void> owner;  ///< of the bytes of the views
  /// Gives back the memory of rows that were read; empty: they are not mapped.
  std::function<void(const TensorView&)> drop;

  /// Leaves out what lies behind the first so many tokens.
  void cut(int64_t tokens);
  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  /// The last token of the image that token belongs to, before a cut; the token itself where it is
  /// text.
  int64_t last_of_image(int64_t token) const;
};

/// The same of a sequence that begins with the second token, whose places are those of the tokens
/// before: a draft layer's. Nothing is injected.
EmbeddedTokens behind_first(const EmbeddedTokens& embedded);

/// Consecutive embedded tokens: rows [first, first + count) lie at tokens position, position + 1, …
struct EmbeddedRun {
  int64_t first = 0, count = 0, position = 0;
};
/// The runs of embedded tokens whose rows are consecutive tokens of one image.
std::vector<EmbeddedRun> runs_of(const EmbeddedTokens& embedded);

}  // namespace kvcal
