#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "tokenizers/components.h"
#include "tokenizers/token_model.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
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
    for (size_t start = 0; start < piece.size();) {
      size_t end = std::min(piece.size(), start + vocabulary_.longest());
      std::optional<TokenId> id;
      for (;; --end) {
        while (end > start && end < piece.size() && utf8::is_tail(piece[end])) --end;
        if (end == start) return false;
        text.assign(start > 0 ? prefix_ : std::string()).append(piece.substr(start, end - start));
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
  for (const auto& [text, id] : vocab->get_ref<const Json::object_t&>())
    vocabulary.add(text, token_id(id, "vocab['" + text.substr(0, 40) + "']"));
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
