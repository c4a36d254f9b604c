#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/diagnostics.h"
#include "core/number.h"
#include "datasets/record_columns.h"

namespace kvcal {

/// Ids that a model reads from the start, and the first of them that is scored; those before it
/// are context.
struct ScoredSequence {
  std::vector<TokenId> ids;
  size_t first_scored = 1;
  std::string place = {};  ///< file and record, or tokens of a text, for messages
};

struct SequenceOptions {
  int64_t num_sequences = 512;    ///< at most
  int64_t max_seq_length = 2048;  ///< tokens
  /// Tokens from the begin of one window of text to the next one's; 0: max_seq_length. A window
  /// scores the tokens that the one before has not.
  int64_t stride = 0;
  /// Records with content that come first and are not scored, in the order of shuffle_seed.
  int64_t num_skipped = 0;
  std::optional<uint64_t> shuffle_seed = {};
  RecordOptions records = {};
};

/// Text as one run of tokens, cut into windows, which is how perplexity is reported; chats and ids
/// a sequence a record. Throws Error for a dataset that cannot be read, ids outside the vocabulary,
/// a stride over max_seq_length, or one of records.
std::vector<ScoredSequence> read_sequences(const std::filesystem::path& path,
                                           const std::filesystem::path& tokenizer_folder,
                                           int64_t vocab_size, const SequenceOptions& options,
                                           Diagnostics& diagnostics);

}  // namespace kvcal
