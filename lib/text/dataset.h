#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvcal {

/// One record of a data set, before rendering. Exactly one kind, judged in this order of keys:
/// input_ids, messages, conversations (ShareGPT, mapped to messages), text.
struct Record {
  std::variant<std::string, Json, std::vector<TokenId>> content;  ///< text, messages, ids
  std::string place;                                              ///< "chat.jsonl:17", for messages
};

/// A data set that can be asked for single records: reading keeps offsets, not texts.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Throws Error with file and line.
  virtual Record record(int64_t index) const = 0;
  /// SHA-256 of the file's bytes.
  virtual std::string sha256() const = 0;
};

/// Opens a data set by content and extension: .jsonl, .json (array of records, or {"ids": [[…]]} /
/// {"input_ids": [[…]]}), .txt (one record a blank-line-separated paragraph), or a .yaml descriptor of a
/// known data set beside a local copy. Throws Error for an empty or unreadable one.
std::unique_ptr<Dataset> open_dataset(const std::filesystem::path& path);

/// The order of Hugging Face `Dataset.shuffle(seed)`: NumPy `default_rng(seed).permutation(count)`.
std::vector<int64_t> shuffled_indices(int64_t count, uint64_t seed);

struct SampleOptions {
  int64_t num_calibration_samples = 512;
  int64_t max_seq_length = 2048;
  std::optional<uint64_t> shuffle_seed;
};

/// One sample: its record's index in the data set and its ids.
struct Sample {
  int64_t index = 0;
  std::vector<TokenId> ids;
};

/// Renders, tokenizes (no special tokens added), cuts and drops empty ones, in data set (or shuffled) order,
/// until num_calibration_samples are kept or records end. tokenizer and chat may be null if no record needs
/// them. Throws Error for records that cannot be used, ids outside [0, vocab_size), or when nothing is left.
std::vector<Sample> read_samples(const Dataset& dataset, const Tokenizer* tokenizer, const ChatFormat* chat,
                                 int64_t vocab_size, const SampleOptions& options, Diagnostics& diagnostics);

}  // namespace kvcal
