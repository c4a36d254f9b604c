#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"
#include "core/registry.h"
#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

/// What stands for a space in pieces of sentencepiece, U+2581.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

/// A fast hash for short strings; the same on every machine.
uint64_t hash_bytes(std::string_view text);

/// Tokens by text and by id. A text has one id (the last one given wins), an id one text.
class Vocabulary {
 public:
  void reserve(size_t count, size_t bytes);
  void add(std::string_view added, TokenId id);

  std::optional<TokenId> find(std::string_view wanted) const;
  std::optional<std::string_view> text_of(TokenId id) const;
  /// Number of different texts.
  size_t size() const { return entries_.size(); }
  /// Largest id, -1 when empty.
  TokenId max_id() const { return max_id_; }
  /// Bytes of the longest text.
  size_t longest() const { return longest_; }

 private:
  struct Entry {
    uint64_t hash;
    size_t offset;
    uint32_t size;
    TokenId id;
  };
  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.size);
  }
  /// Index into slots_ where text is or belongs.
  size_t slot_of(std::string_view wanted, uint64_t hash) const;
  void grow(size_t slots);

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_ =
      std::vector<uint32_t>(16, 0);  ///< entry + 1; a power of two, half empty
  std::unordered_map<TokenId, uint32_t> by_id_;
  TokenId max_id_ = -1;
  size_t longest_ = 0;
};

/// Remembers the ids of short pieces. A fixed table of one cache line an entry, where a piece has
/// one place: the last one to come there stays.
class PieceCache {
 public:
  /// Appends the ids of piece: those that are remembered, or those that encode appends.
  template <class Encode>
  void encode(std::string_view piece, std::vector<TokenId>& ids, const Encode& encode) {
    if (piece.size() > kMostBytes) return encode();
    const uint64_t hash = hash_bytes(piece);
    if (find(piece, hash, ids)) return;
    const size_t before = ids.size();
    encode();
    store(piece, hash, ids.data() + before, ids.size() - before);
  }

 private:
  bool find(std::string_view piece, uint64_t hash, std::vector<TokenId>& ids) const;
  void store(std::string_view piece, uint64_t hash, const TokenId* ids, size_t count);

  static constexpr size_t kMostBytes = 30, kMostIds = 8, kEntries = size_t{1} << 15;
  struct alignas(64) Entry {
    uint8_t size = 0, count = 0;  ///< size 0: free
    char bytes[kMostBytes] = {};
    TokenId ids[kMostIds] = {};
  };
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

/// Memory of one encoding at a time, kept to be used again.
struct Scratch {
  PieceCache cache;
  std::string text;

  /// BPE: a token of the piece, linked to its neighbours (-1: none).
  struct Symbol {
    TokenId id;
    int32_t previous, next;
  };
  std::vector<Symbol> symbols;
  /// BPE: the symbol at position and its successor may be merged.
  struct Candidate {
    uint32_t rank;
    int32_t position;
    TokenId merged;
  };
  std::vector<Candidate> candidates;

  /// Unigram: the best way to cover a text up to one place: score, last token and where that
  /// begins.
  struct Path {
    double score = 0.0;
    TokenId id = 0;
    int64_t start = -1;
  };
  std::vector<Path> paths;
};

/// Scratch memory that is handed out and taken back, so that an encoding finds the last one's
/// cache.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() const {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> free_;
};

/// Pieces to ids. Source: `tokenizers`, src/models. Thread-safe, as every caller brings its own
/// Scratch.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of a piece, which is not empty and valid UTF-8 (any bytes after read_bytes).
  /// Throws Error for a text that the model has no token for and no way to say "unknown".
  virtual void encode(std::string_view piece, Scratch& scratch,
                      std::vector<TokenId>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  /// Makes the model take bytes where it would take their characters in GPT-2's alphabet, if it
  /// can.
  virtual bool read_bytes() { return false; }
};

using MakeTokenModel = std::unique_ptr<TokenModel> (*)(const Json& object);

/// "type" → maker. Models without a type are told apart by their fields in make_model.
extern const Registry<MakeTokenModel> kTokenModels;
std::unique_ptr<TokenModel> make_model(const Json& json, const std::string& path);

std::unique_ptr<TokenModel> make_bpe(const Json& object);
std::unique_ptr<TokenModel> make_unigram(const Json& object);
std::unique_ptr<TokenModel> make_word_level(const Json& object);
std::unique_ptr<TokenModel> make_word_piece(const Json& object);

/// The "vocab" of BPE, WordLevel and WordPiece: an object of text → id.
Vocabulary read_vocabulary(const Json& object);
/// Ids of "<0x00>" ... "<0xFF>", -1 for those that are missing.
std::vector<TokenId> byte_tokens(const Vocabulary& vocabulary);

}  // namespace kvcal::tokenizers
