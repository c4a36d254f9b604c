#include "tokenizers/token_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/safe_points.h"
#include "tokenizers/components.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {

uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  uint64_t hash = text.size() * kMultiplier;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, at, left);
    hash = (hash ^ word) * kMultiplier;
  }
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93u;
  return hash ^ (hash >> 32);
}

void Vocabulary::reserve(size_t count, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(count);
  by_id_.reserve(count);
  size_t slots = slots_.size();
  while (slots < count * 2) slots *= 2;
  grow(slots);
}

size_t Vocabulary::slot_of(std::string_view wanted, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != 0) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && text(entry) == wanted) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::grow(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t i = 0; i < entries_.size(); ++i)
    slots_[slot_of(text(entries_[i]), entries_[i].hash)] = static_cast<uint32_t>(i + 1);
}

void Vocabulary::add(std::string_view added, TokenId id) {
  const uint64_t hash = hash_bytes(added);
  size_t slot = slot_of(added, hash);
  if (slots_[slot] == 0) {
    if (added.size() > UINT32_MAX || entries_.size() > UINT32_MAX / 4)
      fail("vocabulary is too large");
    entries_.push_back({hash, bytes_.size(), static_cast<uint32_t>(added.size()), id});
    bytes_ += added;
    slots_[slot] = static_cast<uint32_t>(entries_.size());
    if (entries_.size() * 2 > slots_.size()) grow(slots_.size() * 2);
    slot = slot_of(added, hash);
  }
  const uint32_t index = slots_[slot] - 1;
  entries_[index].id = id;
  by_id_[id] = index;
  max_id_ = std::max(max_id_, id);
  longest_ = std::max(longest_, added.size());
}

std::optional<TokenId> Vocabulary::find(std::string_view wanted) const {
  const uint32_t index = slots_[slot_of(wanted, hash_bytes(wanted))];
  if (index == 0) return std::nullopt;
  return entries_[index - 1].id;
}

std::optional<std::string_view> Vocabulary::text_of(TokenId id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return text(entries_[found->second]);
}

namespace {

class WordLevel : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unknown)
      : vocabulary_(std::move(vocabulary)),
        unknown_text_(std::move(unknown)),
        unknown_(vocabulary_.find(unknown_text_)) {}

  void encode(std::string_view piece, Scratch&, std::vector<TokenId>& ids) const override {
    const auto id = vocabulary_.find(piece);
    if (!id && !unknown_)
      fail("no token for '", piece.substr(0, 40), "', and unk_token '", unknown_text_,
           "' is not in the vocabulary");
    ids.push_back(id ? *id : *unknown_);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::string unknown_text_;
  std::optional<TokenId> unknown_;
};

/// The longest word; its cover takes up to the third power of the length. All published models have
/// 100.
constexpr int64_t kMostCharacters = 256;

/// Longest match first; a word that cannot be covered is unknown as a whole.
class WordPiece : public TokenModel {
 public:
  WordPiece(const Json& object, Vocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)),
        unknown_text_(optional_string(object, "unk_token").value_or("[UNK]")),
        prefix_(optional_string(object, "continuing_subword_prefix").value_or("##")),
        most_characters_(optional_int(object, "max_input_chars_per_word").value_or(100)),
        unknown_(vocabulary_.find(unknown_text_)) {
    if (most_characters_ > kMostCharacters)
      fail("key 'max_input_chars_per_word' is ", most_characters_, ", the limit is ",
           kMostCharacters);
    if (static_cast<int64_t>(prefix_.size()) > kMostCharacters)
      fail("key 'continuing_subword_prefix' has ", prefix_.size(), " bytes, the limit is ",
           kMostCharacters);
  }

  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const override {
    const size_t before = ids.size();
    if (static_cast<int64_t>(unicode::length(piece)) <= most_characters_ &&
        cover(piece, scratch.text, ids))
      return;
    if (!unknown_)
      fail("no tokens for '", piece.substr(0, 40), "', and unk_token '", unknown_text_,
           "' is not in the vocabulary");
    ids.resize(before);
    ids.push_back(*unknown_);
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  bool cover(std::string_view piece, std::string& text, std::vector<TokenId>& ids) const {
    SafePoints points(size_t{1} << 20);  // of bytes
    for (size_t start = 0; start < piece.size();) {
      size_t end = std::min(piece.size(), start + vocabulary_.longest());
      std::optional<TokenId> id;
      for (;; --end) {
        while (end > start && end < piece.size() && utf8::is_tail(piece[end])) --end;
        if (end == start) return false;
        text.assign(start > 0 ? prefix_ : std::string()).append(piece.substr(start, end - start));
        points.pass(text.size());
        if ((id = vocabulary_.find(text))) break;
      }
      ids.push_back(*id);
      start = end;
    }
    return true;
  }

  Vocabulary vocabulary_;
  std::string unknown_text_, prefix_;
  int64_t most_characters_;
  std::optional<TokenId> unknown_;
};

}  // namespace

bool PieceCache::find(std::string_view piece, uint64_t hash, std::vector<TokenId>& ids) const {
  const Entry& entry = entries_[hash % kEntries];
  if (entry.size != piece.size() || std::memcmp(entry.bytes, piece.data(), piece.size()) != 0)
    return false;
  ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
  return true;
}

void PieceCache::store(std::string_view piece, uint64_t hash, const TokenId* ids, size_t count) {
  if (count > kMostIds) return;
  Entry& entry = entries_[hash % kEntries];
  entry.size = static_cast<uint8_t>(piece.size());
  entry.count = static_cast<uint8_t>(count);
  std::memcpy(entry.bytes, piece.data(), piece.size());
  std::copy_n(ids, count, entry.ids);
}

Vocabulary read_vocabulary(const Json& object) {
  const Json* vocab = find_field(object, "vocab");
  if (!vocab) fail_missing("vocab", "an object");
  if (!vocab->is_object()) fail_kind("vocab", "an object", *vocab);
  Vocabulary vocabulary;
  vocabulary.reserve(vocab->size(), vocab->size() * 8);
  SafePoints points;
  for (const auto& [text, id] : vocab->get_ref<const Json::object_t&>()) {
    points.pass();
    vocabulary.add(text, token_id(id, "vocab['" + text.substr(0, 40) + "']"));
  }
  return vocabulary;
}

std::vector<TokenId> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
    ids.push_back(vocabulary.find(text.data()).value_or(-1));
  }
  return ids;
}

std::unique_ptr<TokenModel> make_word_level(const Json& object) {
  return std::make_unique<WordLevel>(read_vocabulary(object), required_string(object, "unk_token"));
}
std::unique_ptr<TokenModel> make_word_piece(const Json& object) {
  return std::make_unique<WordPiece>(object, read_vocabulary(object));
}

const Registry<MakeTokenModel> kTokenModels{"type",
                                            {{"BPE", make_bpe},
                                             {"Unigram", make_unigram},
                                             {"WordLevel", make_word_level},
                                             {"WordPiece", make_word_piece}}};

std::unique_ptr<TokenModel> make_model(const Json& json, const std::string& path) {
  return in_context(path, [&] {
    // Files of before 2021 have no type.
    const char* guess = find_field(json, "merges")                      ? "BPE"
                        : find_field(json, "unk_id")                    ? "Unigram"
                        : find_field(json, "continuing_subword_prefix") ? "WordPiece"
                                                                        : "WordLevel";
    return kTokenModels.at(optional_string(json, "type").value_or(guess))(json);
  });
}

}  // namespace kvcal::tokenizers
