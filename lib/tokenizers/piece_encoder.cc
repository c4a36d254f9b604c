#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/safe_points.h"
#include "tokenizers/charsmap.h"
#include "tokenizers/components.h"
#include "tokenizers/model_proto.h"
#include "tokenizers/token_trie.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

using Type = ModelProto::PieceType;

/// How much worse than the worst piece an unknown character is. Source: sentencepiece, kUnkPenalty.
constexpr float kUnknownPenalty = 10.0f;

/// Bytes of the character at text[at] by its first one, as sentencepiece counts them: a character
/// map may have made text that is not UTF-8.
size_t character_size(std::string_view text, size_t at) {
  const unsigned lead = static_cast<unsigned char>(text[at]);
  const size_t size = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

/// A part of a text and its id.
struct Part {
  std::string_view text;
  TokenId id = -1;
};

/// The pieces of a model by their text, and the steps that all kinds of models share: a text is
/// normalized, a kind's `divide` takes it apart, and the parts become ids. Source: sentencepiece
/// 0.1.97 to 0.2.0, Normalizer, ModelInterface and SentencePieceProcessor.
class PieceEncoderOf : public PieceEncoder {
 public:
  explicit PieceEncoderOf(const ModelProto& model)
      : removes_spaces_(model.remove_extra_whitespaces),
        has_prefix_(model.add_dummy_prefix),
        puts_mark_behind_(model.treat_whitespace_as_suffix),
        space_(model.escape_whitespaces ? kSpaceMark : " ") {
    if (!model.charsmap.empty()) charsmap_.emplace(model.charsmap);
    SafePoints points;
    for (size_t i = 0; i < model.pieces.size(); ++i) {
      points.pass();
      const auto& [text, score, type] = model.pieces[i];
      const auto id = static_cast<TokenId>(i);
      const bool is_plain =
          type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
      (is_plain ? plain_ : reserved_).add(text, id);
      if (type == Type::kUserDefined) user_defined_.add(text, id);
      if (type == Type::kUnknown) unknown_ = id;
      types_.push_back(type);
      scores_.push_back(score);
    }
    if (model.byte_fallback) byte_ids_ = byte_tokens(reserved_);
  }

  void encode(std::string_view text, bool has_prefix, std::vector<TokenId>& ids) const override {
    const std::string normalized = normalize(text, has_prefix && has_prefix_);
    if (normalized.empty()) return;
    bool follows_unknown = false;
    divide(normalized, [&](const Part& part) {
      const bool is_unknown = part.id == unknown_;
      if (type(part.id) == Type::kControl)
        fail("the text spells '", part.text, "', a control token of the tokenizer");
      if (is_unknown && !byte_ids_.empty())
        for (const char byte : part.text) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      else if (!is_unknown || !follows_unknown)
        ids.push_back(part.id);
      follows_unknown = is_unknown;
    });
  }

 protected:
  /// Hands all parts of text to out, in order.
  virtual void divide(std::string_view text, Visitor<Part> out) const = 0;

  TokenId id_of(std::string_view part) const {
    if (const auto id = reserved_.find(part)) return *id;
    if (const auto id = plain(part)) return *id;
    return unknown_;
  }
  std::optional<TokenId> plain(std::string_view part) const {
    return part.size() > plain_.longest() ? std::nullopt : plain_.find(part);
  }
  Type type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  float score(TokenId id) const { return scores_[static_cast<size_t>(id)]; }
  TokenId unknown() const { return unknown_; }
  /// Bytes of the user's longest piece that begins at text[at], 0 where there is none.
  size_t user_defined_size(std::string_view text, size_t at) const {
    return user_defined_.empty() ? 0 : user_defined_.longest(text, at).second - at;
  }

 private:
  /// What stands for the beginning of text from `at` on, and that beginning's length.
  std::pair<std::string_view, size_t> rewritten(std::string_view text, size_t at) const {
    if (const size_t size = user_defined_size(text, at)) return {text.substr(at, size), size};
    if (charsmap_)
      if (const auto found = charsmap_->of_longest_prefix(text.substr(at))) return *found;
    if (const size_t size = unicode::well_formed_size(text, at))
      return {text.substr(at, size), size};
    return {"\xef\xbf\xbd", 1};
  }

  std::string normalize(std::string_view text, bool has_prefix) const {
    size_t at = 0;
    SafePoints points;
    for (; removes_spaces_ && at < text.size(); points.pass()) {
      const auto [part, size] = rewritten(text, at);
      if (part != " ") break;
      at += size;
    }
    std::string result;
    if (at == text.size()) return result;
    result.reserve(text.size() - at + space_.size());
    if (has_prefix && !puts_mark_behind_) result += space_;
    bool drops_spaces = removes_spaces_;
    while (at < text.size()) {
      points.pass();
      auto [part, size] = rewritten(text, at);
      at += size;
      if (drops_spaces) part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
      if (part.empty()) continue;
      for (const char c : part) result += c == ' ' ? space_ : std::string_view(&c, 1);
      drops_spaces = removes_spaces_ && part.back() == ' ';
      check_growth(text.size(), result.size());
    }
    while (removes_spaces_ && result.ends_with(space_))
      result.resize(result.size() - space_.size());
    if (has_prefix && puts_mark_behind_) result += space_;
    return result;
  }

  Vocabulary plain_, reserved_;
  TokenTrie user_defined_;
  std::optional<Charsmap> charsmap_;
  std::vector<Type> types_;
  std::vector<float> scores_;
  std::vector<TokenId> byte_ids_;
  TokenId unknown_ = -1;
  bool removes_spaces_, has_prefix_, puts_mark_behind_;
  std::string_view space_;
};

/// The likeliest cover of a text by pieces. Scores are summed as floats and compared as the library
/// does it, because in a long text the rounding decides. Source: unigram::Model::EncodeOptimized.
class UnigramPieces : public PieceEncoderOf {
 public:
  explicit UnigramPieces(const ModelProto& model) : PieceEncoderOf(model) {
    float worst = FLT_MAX;
    SafePoints points;
    for (size_t i = 0; i < model.pieces.size(); ++i) {
      const auto& [text, score, type] = model.pieces[i];
      points.pass(text.size());
      if (type == Type::kNormal) worst = std::min(worst, score);
      if (type == Type::kNormal) best_ = std::max(best_, score);
      if (type == Type::kNormal || type == Type::kUserDefined)
        trie_.add(text, static_cast<TokenId>(i));
    }
    unknown_score_ = worst - kUnknownPenalty;
  }

 private:
  struct Path {
    float score = 0.0f;
    TokenId id = -1;
    int64_t start = -1;
  };

  void divide(std::string_view text, Visitor<Part> out) const override {
    std::vector<Path> paths(text.size() + 1);
    SafePoints points(1024);  // each place may begin many long pieces
    for (size_t at = 0; at < text.size();) {
      points.pass();
      const float so_far = paths[at].score;
      const size_t size = character_size(text, at);
      bool has_single = false;
      const auto offer = [&](size_t length, TokenId id, double score) {
        Path& path = paths[at + length];
        if (path.start >= 0 && score <= path.score) return;
        path = {static_cast<float>(score), id, static_cast<int64_t>(at)};
      };
      trie_.prefixes(text.substr(at), [&](size_t length, TokenId id) {
        offer(length, id, score_of(id, length) + so_far);
        has_single = has_single || length == size;
      });
      if (!has_single) offer(size, unknown(), unknown_score_ + so_far);
      at += size;
    }
    std::vector<size_t> ends;
    for (size_t end = text.size(); end > 0; end = static_cast<size_t>(paths[end].start))
      ends.push_back(end);
    for (size_t i = ends.size(); i-- > 0;) {
      points.pass();
      const Path& path = paths[ends[i]];
      const auto start = static_cast<size_t>(path.start);
      out({text.substr(start, ends[i] - start), path.id});
    }
  }

  /// A piece of the user is better than any others in its place.
  double score_of(TokenId id, size_t length) const {
    if (type(id) == Type::kUserDefined) return static_cast<float>(length) * best_ - 0.1;
    return score(id);
  }

  TokenTrie trie_;
  float unknown_score_ = 0.0f, best_ = FLT_MIN;
};

/// Characters that are merged to pieces, the best score first, the leftmost among equals; pieces of
/// the user stay as they are. Source: bpe::Model::SampleEncode.
class BpePieces : public PieceEncoderOf {
 public:
  using PieceEncoderOf::PieceEncoderOf;

 private:
  struct Symbol {
    std::string_view text;  ///< empty: has gone into another one
    int64_t previous = -1, next = -1;
    bool is_frozen = false;
  };
  struct Pair {
    size_t left = 0, right = 0, size = 0;
    float score = 0.0f;
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  /// What an encoding works on. The parts of a piece that is not used stand for it.
  struct Work {
    std::vector<Symbol> symbols;
    std::priority_queue<Pair> pairs;
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> parts;
    SafePoints points;
  };

  void divide(std::string_view text, Visitor<Part> out) const override {
    Work work;
    for (size_t at = 0; at < text.size();) {
      work.points.pass();
      const size_t own = user_defined_size(text, at);
      const size_t size = own > 0 ? own : character_size(text, at);
      const auto i = static_cast<int64_t>(work.symbols.size());
      at += size;
      work.symbols.push_back({text.substr(at - size, size), i - 1, i + 1, own > 0});
    }
    work.symbols.back().next = -1;
    for (size_t i = 1; i < work.symbols.size(); ++i) offer(work, i - 1);
    while (!work.pairs.empty()) merge_best(work);
    for (size_t i = 0; i < work.symbols.size();) {
      hand_out(work, work.symbols[i].text, out);
      if (work.symbols[i].next < 0) break;
      i = static_cast<size_t>(work.symbols[i].next);
    }
  }

  /// Adds the pair of a symbol and the next one, where they make a piece.
  void offer(Work& work, size_t i) const {
    const Symbol& left = work.symbols[i];
    if (left.next < 0) return;
    const auto next = static_cast<size_t>(left.next);
    const Symbol& right = work.symbols[next];
    if (left.is_frozen || right.is_frozen) return;
    const std::string_view text(left.text.data(), left.text.size() + right.text.size());
    work.points.pass(1 + text.size() / 64);
    const auto id = plain(text);
    if (!id) return;
    work.pairs.push({i, next, text.size(), score(*id)});
    if (type(*id) == Type::kUnused) work.parts[text] = {left.text, right.text};
  }

  void merge_best(Work& work) const {
    work.points.pass();
    const Pair pair = work.pairs.top();
    work.pairs.pop();
    Symbol& left = work.symbols[pair.left];
    Symbol& right = work.symbols[pair.right];
    // Since it was found, one of the two may have become part of another.
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != pair.size)
      return;
    left.text = std::string_view(left.text.data(), pair.size);
    left.next = right.next;
    if (right.next >= 0)
      work.symbols[static_cast<size_t>(right.next)].previous = static_cast<int64_t>(pair.left);
    right.text = {};
    if (left.previous >= 0) offer(work, static_cast<size_t>(left.previous));
    offer(work, pair.left);
  }

  void hand_out(Work& work, std::string_view text, Visitor<Part> out) const {
    std::vector<std::string_view> rest{text};
    while (!rest.empty()) {
      work.points.pass();
      const std::string_view part = rest.back();
      rest.pop_back();
      const TokenId id = id_of(part);
      const auto found = type(id) == Type::kUnused ? work.parts.find(part) : work.parts.end();
      if (found == work.parts.end()) {
        out({part, id});
        continue;
      }
      rest.push_back(found->second.second);
      rest.push_back(found->second.first);
    }
  }
};

/// Whole words, which begin with a space mark, or single characters and pieces of the user. Source:
/// word::Model and character::Model.
class WholePieces : public PieceEncoderOf {
 public:
  WholePieces(const ModelProto& model, bool are_words)
      : PieceEncoderOf(model), are_words_(are_words) {}

 private:
  void divide(std::string_view text, Visitor<Part> out) const override {
    SafePoints points;
    for (size_t at = 0; at < text.size();) {
      size_t size = are_words_ ? std::min(text.find(kSpaceMark, at + 1), text.size()) - at
                               : user_defined_size(text, at);
      if (size == 0) size = character_size(text, at);
      points.pass(size);
      out({text.substr(at, size), id_of(text.substr(at, size))});
      at += size;
    }
  }

  bool are_words_;
};

}  // namespace

std::unique_ptr<PieceEncoder> make_piece_encoder(const ModelProto& model) {
  if (auto fast = make_scored_bpe(model)) return fast;
  if (model.kind == ModelProto::Kind::kUnigram) return std::make_unique<UnigramPieces>(model);
  if (model.kind == ModelProto::Kind::kBpe) return std::make_unique<BpePieces>(model);
  return std::make_unique<WholePieces>(model, model.kind == ModelProto::Kind::kWord);
}

}  // namespace kvcal::tokenizers
