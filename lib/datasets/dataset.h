#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/diagnostics.h"
#include "core/embedded_tokens.h"
#include "core/json.h"
#include "datasets/chat_template.h"
#include "datasets/record_columns.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// One record of a data set, before rendering. Exactly one kind, judged in this order of keys (null
/// counts as absent): input_ids, messages, conversations (ShareGPT, mapped to messages), text,
/// instruction with output, prompt with response (both mapped to messages), content. Other keys are
/// ignored.
struct Record {
  /// Text; messages, an array of {"role", "content", …} that may be empty; or ids, none negative.
  std::variant<std::string, Json, std::vector<TokenId>> content;
  /// "chat.jsonl:17" (line), "chat.json:12, record 3" (line and index) or "chat.parquet: row 17"
  /// (from 0), for error messages.
  std::string place;
  /// Of messages: the variables that the record gives the template, `tools`, `documents` and those
  /// of `chat_template_kwargs`; null: none.
  Json variables = nullptr;
  /// Of ids: what the vision tower puts in place of embeddings; null: the record is text.
  std::shared_ptr<EmbeddedTokens> embedded = nullptr;
};

/// A data set that can be asked for single records: reading keeps offsets, not texts. Not for
/// several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Throws Error with file and line.
  virtual Record record(int64_t index) const = 0;
  /// The caller says before it reads: the records at these indices will be asked for, in any order.
  /// Tables are then read once from the beginning to the end.
  virtual void will_read(std::span<const int64_t> /*indices*/) const {}
  /// SHA-256 of the data file's bytes as they lie on the disk; for a descriptor, of the local copy
  /// it reads; of several files, over "<name>\0<SHA-256>\n" of each in the order they are read.
  virtual std::string sha256() const = 0;
  /// The texts of the records at these indices, which differ, joined by an empty line. Throws Error
  /// at a record that is not text.
  std::string joined_text(std::span<const int64_t> indices) const;
  /// All of it as one text, for perplexity: a plain text file as it stands, otherwise the records'
  /// texts joined by an empty line, which is how wikitext perplexity is reported. Throws Error at a
  /// record that is not text.
  virtual std::string whole_text() const;
};

/// Values that a caller may put in place of a descriptor's own.
struct DatasetOverrides {
  std::optional<std::filesystem::path> local_copy = {};
  std::optional<std::string> split = {};
  RecordOptions records = {};  ///< of any data set
};

/// Opens a data set; what it is follows from the extension, else from the content (docs/data.md):
/// - .jsonl, .ndjson: one record a line, blank lines skipped;
/// - .json: an array of records; an object with one array of records ({"data": [{…}]});
/// {"input_ids": [[…]]}
///   or {"ids": [[…]]}; a single record; or JSON lines under that name;
/// - .csv, .tsv: a header and a record a row; a text that begins with a header of such keys, too;
/// - .txt, .text, .md and whatever is none of the others: a record is a paragraph, that is, lines
/// up to a blank one;
/// - a name of the program's own texts and descriptors (lib/datasets/named_dataset.h), where no
/// such file is there;
/// - .yaml, .yml: a descriptor (lib/datasets/descriptor.h) of a known data set that lies beside it;
/// - .parquet, .arrow, .feather, .ipc: a table, a record is a row;
/// - a folder that `datasets` saved, or else a folder or pattern of files
/// (lib/datasets/data_files.h). Text may be packed with gzip or zstd, which is seen by its first
/// bytes. A UTF-8 byte order mark is skipped; text line breaks become "\n"; a record longer than
/// the limit is refused. Throws Error for one that is empty or cannot be read.
std::unique_ptr<Dataset> open_dataset(const std::filesystem::path& path,
                                      const DatasetOverrides& overrides = {});

/// The files that a path of open_dataset stands for, in the order they are read: of a folder or a
/// pattern those in it, otherwise the file itself. Throws Error as open_dataset.
std::vector<std::filesystem::path> dataset_files(const std::filesystem::path& path);

/// The order of Hugging Face `Dataset.shuffle(seed)`: NumPy `default_rng(seed).permutation(count)`.
/// Throws Error for a negative count or one above 2^32.
std::vector<int64_t> shuffled_indices(int64_t count, uint64_t seed);

struct SampleOptions {
  int64_t num_calibration_samples = 512;
  int64_t max_seq_length = 2048;
  std::optional<uint64_t> shuffle_seed;
  SkipLimit skip = {};
};

/// Records that could not be used and were passed over.
struct SkippedRecords {
  int64_t count = 0;
  std::map<std::string, int64_t> reasons = {};  ///< by the error without its place
  std::string first = {};                       ///< the first one's error
};

/// "12" records, or "1%" or "0.01" of the data set. Throws Error.
SkipLimit parse_skip_limit(const std::string& text);

/// The first record that can be read, past those that may be skipped. Throws Error of one that may
/// not.
Record first_record(const Dataset& dataset, const SkipLimit& skip);

/// The indices of a data set's records in the order in which samples are read.
std::vector<int64_t> reading_order(const Dataset& dataset, const std::optional<uint64_t>& seed);

/// One sample: its record's index in the data set and its ids.
struct Sample {
  int64_t index = 0;
  std::vector<TokenId> ids;
  std::shared_ptr<const EmbeddedTokens> embedded = nullptr;  ///< null: all tokens are text
};

/// Tokens of each, and of all together.
std::vector<int64_t> lengths_of(std::span<const Sample> samples);
int64_t tokens_of(std::span<const Sample> samples);
/// Tokens of the longest; 0 without samples.
int64_t longest_of(std::span<const Sample> samples);

/// Templates that ask for the date (strftime_now) get 26 Jul 2024, so that the day changes nothing.
/// Renders, tokenizes (no special tokens added), cuts and drops empty ones, in data set (or
/// shuffled) order, until num_calibration_samples are kept or records end. tokenizer and chat may
/// be null if no record needs them; without chat the texts of a conversation are joined by empty
/// lines. Warns when records run out, when some were dropped or skipped, and when a template leaves
/// out a message's text. Throws Error for records that cannot be used, beyond those that may be
/// skipped, ids outside [0, vocab_size), or when nothing is left. skipped: receives those passed
/// over, or null.
std::vector<Sample> read_samples(const Dataset& dataset, const Tokenizer* tokenizer,
                                 const ChatFormat* chat, int64_t vocab_size,
                                 const SampleOptions& options, Diagnostics& diagnostics,
                                 SkippedRecords* skipped = nullptr);

}  // namespace kvcal
