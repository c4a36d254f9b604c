#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// Constants of the hashes of a layer's n-grams. Hash h of an n-gram is the exclusive or of each
/// token times its factor, modulo sizes[h], in the rows of a table from offsets[h] on. Source:
/// transformers 5.24, models/qwen4_exp `Qwen4ExpTextNGramEmbedding`.
struct NgramHashes {
  std::vector<int64_t> factors;         ///< [longest], of the last token first
  std::vector<int64_t> sizes, offsets;  ///< [all_hashes], those of the shorter n-grams first

  int64_t rows() const { return offsets.empty() ? 0 : offsets.back() + sizes.back(); }
};

/// Those that transformers makes for the layer with this index among the layers with n-grams.
NgramHashes ngram_hashes(const NgramConfig& config, int64_t vocab_size, int64_t index);

/// Appends the rows of the table for the n-grams that end at a token. ids: the token and those
/// before it, [history + 1], the oldest first.
void append_ngram_rows(const NgramConfig& config, const NgramHashes& hashes,
                       std::span<const int32_t> ids, std::vector<int64_t>& rows);

}  // namespace kvcal
