#include "tokenizers/bpe.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/safe_points.h"
#include "tokenizers/components.h"
#include "tokenizers/model_proto.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// For a heap whose front is the lowest rank, the leftmost among equals.
bool comes_later(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void MergeTable::merge_short(Scratch& scratch) const {
  constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  auto& symbols = scratch.symbols;
  auto& pairs = scratch.candidates;  // pairs[i]: symbols i and i + 1
  const auto look_up = [&](size_t i) {
    const Merge* merge = find(symbols[i].id, symbols[i + 1].id);
    pairs[i] = merge ? Scratch::Candidate{merge->rank, 0, merge->merged}
                     : Scratch::Candidate{kNever, 0, 0};
  };
  if (symbols.size() < 2) return;
  pairs.resize(symbols.size() - 1);
  for (size_t i = 0; i < pairs.size(); ++i) look_up(i);
  while (!pairs.empty()) {
    const auto best = std::min_element(
        pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNever) break;
    const auto i = static_cast<size_t>(best - pairs.begin());
    symbols[i].id = best->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    pairs.erase(best);
    if (i < pairs.size()) look_up(i);
    if (i > 0) look_up(i - 1);
  }
}

void MergeTable::push(Scratch& scratch, int32_t position) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const Merge* merge = find(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
  if (merge) scratch.candidates.push_back({merge->rank, position, merge->merged});
}

void MergeTable::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.candidates;
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) push(scratch, i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto push_heap = [&](int32_t position) {
    const size_t before = heap.size();
    push(scratch, position);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  SafePoints points;
  while (!heap.empty()) {
    points.pass();
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id < 0 || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // Since it was pushed, one of the two may have been merged with another symbol.
    const Merge* merge = find(left.id, right.id);
    if (!merge || merge->merged != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) push_heap(left.previous);
    push_heap(best.position);
  }
}

namespace {

/// Up to this many symbols, looking through all of them for the next merge is faster than a heap.
constexpr size_t kShort = 24;
constexpr size_t kLongestAffix = 64;

/// Source: `tokenizers`, models/bpe: symbols are merged by rank, the leftmost first among equals.
class Bpe : public TokenModel {
 public:
  Bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges)
      : options_(std::move(options)),
        vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        fallback_(options_.byte_fallback ? byte_tokens(vocabulary_) : std::vector<TokenId>()) {
    if (options_.has_unknown) unknown_ = vocabulary_.find(options_.unknown);
    splits_at_marks_ = can_split_at_marks();
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  bool read_bytes() override {
    if (!options_.prefix.empty() || !options_.suffix.empty()) return false;
    std::vector<TokenId> ids;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto id =
          vocabulary_.find(unicode::encode(byte_to_character(static_cast<uint8_t>(byte))));
      if (!id) return false;
      ids.push_back(*id);
    }
    byte_ids_ = std::move(ids);
    splits_at_marks_ = false;
    return true;
  }

  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const override {
    if (options_.ignore_merges) {
      if (const auto id = whole(piece, scratch)) {
        ids.push_back(*id);
        return;
      }
    }
    if (!splits_at_marks_) return encode_part(piece, scratch, ids);
    for (size_t begin = 0; begin < piece.size();) {
      // A part is a run of marks and what follows up to the next mark.
      size_t at = begin;
      while (piece.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
      const size_t end = std::min(piece.find(kSpaceMark, at), piece.size());
      encode_part(piece.substr(begin, end - begin), scratch, ids);
      begin = end;
    }
  }

 private:
  /// True when no merge can join what stands before a space mark with it. Then the text between
  /// marks can be merged, and remembered, for itself, with the same result.
  bool can_split_at_marks() const {
    const bool covers_all =
        unknown_ || (!fallback_.empty() && std::count(fallback_.begin(), fallback_.end(), -1) == 0);
    if (!covers_all || !options_.prefix.empty() || !options_.suffix.empty()) return false;
    return vocabulary_.find(kSpaceMark) && !options_.unknown.ends_with(kSpaceMark) &&
           !merges_.joins_before_mark();
  }

  std::optional<TokenId> whole(std::string_view piece, Scratch& scratch) const {
    if (byte_ids_.empty()) return vocabulary_.find(piece);
    if (piece.size() > vocabulary_.longest()) return std::nullopt;
    scratch.text.clear();
    append_byte_alphabet(scratch.text, piece);
    return vocabulary_.find(scratch.text);
  }

  void encode_part(std::string_view part, Scratch& scratch, std::vector<TokenId>& ids) const {
    scratch.cache.encode(part, ids, [&] { merge(part, scratch, ids); });
  }

  void merge(std::string_view part, Scratch& scratch, std::vector<TokenId>& ids) const {
    scratch.symbols.clear();
    const auto add = [&](TokenId id) { scratch.symbols.push_back({id, 0, 0}); };
    if (byte_ids_.empty()) {
      add_symbols(part, scratch, add);
    } else {
      for (const char byte : part) add(byte_ids_[static_cast<unsigned char>(byte)]);
    }
    if (scratch.symbols.size() <= kShort)
      merges_.merge_short(scratch);
    else
      merges_.merge_long(scratch);
    for (const Scratch::Symbol& symbol : scratch.symbols)
      if (symbol.id >= 0) ids.push_back(symbol.id);
  }

  /// The initial symbols: a token for each code point, or its bytes' tokens, or "unknown", or
  /// nothing.
  template <class Add>
  void add_symbols(std::string_view part, Scratch& scratch, Add add) const {
    bool has_pending = false;  // an unknown one that may grow
    const auto flush = [&] {
      if (has_pending) add(*unknown_);
      has_pending = false;
    };
    SafePoints points;
    for (size_t at = 0; at < part.size();) {
      points.pass();
      const size_t size = unicode::decode(part, at).size;
      scratch.text.assign(at == 0 ? std::string() : options_.prefix).append(part.substr(at, size));
      at += size;
      if (at == part.size()) scratch.text += options_.suffix;
      if (const auto id = vocabulary_.find(scratch.text)) {
        flush();
        add(*id);
      } else if (!add_bytes(scratch.text, add) && options_.has_unknown) {
        if (!unknown_)
          fail("unk_token '", options_.unknown, "' is not in the vocabulary, and '", scratch.text,
               "' is needed");
        if (!options_.fuse_unknown) flush();
        has_pending = true;
      }
    }
    flush();
  }

  template <class Add>
  bool add_bytes(std::string_view text, Add add) const {
    if (fallback_.empty()) return false;
    for (const char byte : text)
      if (fallback_[static_cast<unsigned char>(byte)] < 0) return false;
    for (const char byte : text) add(fallback_[static_cast<unsigned char>(byte)]);
    return true;
  }

  BpeOptions options_;
  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<TokenId> fallback_, byte_ids_;
  std::optional<TokenId> unknown_;
  bool splits_at_marks_ = false;
};

std::pair<std::string, std::string> read_pair(const Json& merge) {
  if (merge.is_string()) {
    const std::string text = merge.get<std::string>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      fail("'", text.substr(0, 60), "' is not two tokens with a space between");
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
    fail("found ", kind_of(merge), ", expected \"a b\" or [\"a\", \"b\"]");
  return {merge[0].get<std::string>(), merge[1].get<std::string>()};
}

MergeTable read_merges(const Json& object, const Vocabulary& vocabulary,
                       const std::string& prefix) {
  const Json& merges = required_array(object, "merges");
  if (merges.size() > std::numeric_limits<uint32_t>::max() / 4)
    fail("too many merges: ", merges.size());
  MergeTable table;
  uint32_t rank = 0;
  SafePoints points;
  for (size_t i = 0; i < merges.size(); ++i) {
    points.pass();
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version"))
      continue;
    in_context("merges[" + std::to_string(i) + "]", [&] {
      const auto [left, right] = read_pair(merges[i]);
      const auto id_of = [&](const std::string& token) {
        const auto id = vocabulary.find(token);
        if (!id) fail("token '", token.substr(0, 60), "' is not in the vocabulary");
        return *id;
      };
      if (!prefix.empty() && right.size() < prefix.size())
        fail("'", right, "' is shorter than continuing_subword_prefix");
      const TokenId left_id = id_of(left), right_id = id_of(right);
      table.add(left_id, right_id, rank, id_of(left + right.substr(prefix.size())));
      if (right.starts_with(kSpaceMark) && !left.ends_with(kSpaceMark))
        table.note_join_before_mark();
    });
    ++rank;
  }
  return table;
}

}  // namespace

std::unique_ptr<TokenModel> make_bpe(const Json& object) {
  const double dropout = optional_number(object, "dropout").value_or(0.0);
  if (dropout != 0.0)
    fail("key 'dropout' is ", dropout, ": random tokens cannot be reproduced, expected null");
  const auto unknown = optional_string(object, "unk_token");
  BpeOptions options{
      .unknown = unknown.value_or(""),
      .prefix = optional_string(object, "continuing_subword_prefix").value_or(""),
      .suffix = optional_string(object, "end_of_word_suffix").value_or(""),
      .has_unknown = unknown.has_value(),
      .fuse_unknown = optional_bool(object, "fuse_unk").value_or(false),
      .byte_fallback = optional_bool(object, "byte_fallback").value_or(false),
      .ignore_merges = optional_bool(object, "ignore_merges").value_or(false),
  };
  // Both are put before or behind single characters.
  for (const std::string* affix : {&options.prefix, &options.suffix})
    if (affix->size() > kLongestAffix)
      fail("continuing_subword_prefix or end_of_word_suffix has ", affix->size(),
           " bytes, the limit is ", kLongestAffix);
  Vocabulary vocabulary = read_vocabulary(object);
  MergeTable merges = read_merges(object, vocabulary, options.prefix);
  return make_bpe(std::move(options), std::move(vocabulary), std::move(merges));
}

std::unique_ptr<TokenModel> make_bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges) {
  return std::make_unique<Bpe>(std::move(options), std::move(vocabulary), std::move(merges));
}

namespace {

/// A piece is split at each of its characters; longer ones are left to the library.
constexpr size_t kLongestPiece = 512;

bool has_plain_settings(const ModelProto& model) {
  return model.kind == ModelProto::Kind::kBpe && model.charsmap.empty() &&
         !model.remove_extra_whitespaces && model.escape_whitespaces &&
         !model.treat_whitespace_as_suffix;
}

/// Ranks by score, the highest first; equal scores have equal ranks, so that the leftmost pair goes
/// first.
std::vector<uint32_t> ranks_of(const std::vector<ModelProto::Piece>& pieces) {
  std::vector<float> scores;
  for (const auto& piece : pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& piece : pieces) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(at - scores.begin()));
  }
  return ranks;
}

bool has_mark_inside(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaceMark);
  return first != std::string_view::npos && text.find(kSpaceMark, first) != std::string_view::npos;
}

class ScoredBpe : public PieceEncoder {
 public:
  ScoredBpe(std::unique_ptr<TokenModel> bpe, bool has_prefix)
      : bpe_(std::move(bpe)), has_prefix_(has_prefix) {}

  void encode(std::string_view text, bool has_prefix, std::vector<TokenId>& ids) const override {
    if (text.empty()) return;
    std::string marked;
    marked.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
    if (has_prefix && has_prefix_) marked += kSpaceMark;
    for (const char c : text) {
      if (c == ' ')
        marked += kSpaceMark;
      else
        marked += c;
    }
    auto scratch = scratch_.take();
    bpe_->encode(marked, *scratch, ids);
    scratch_.give_back(std::move(scratch));
  }

 private:
  std::unique_ptr<TokenModel> bpe_;
  bool has_prefix_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<PieceEncoder> make_scored_bpe(const ModelProto& model) {
  using Type = ModelProto::PieceType;
  if (!has_plain_settings(model)) return nullptr;
  Vocabulary symbols, all;
  std::string unknown;
  SafePoints points;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    points.pass();
    const auto& [text, score, type] = model.pieces[i];
    const bool is_odd = type == Type::kUserDefined || type == Type::kUnused ||
                        text.size() > kLongestPiece || all.find(text) ||
                        (type == Type::kNormal && has_mark_inside(text));
    if (is_odd) return nullptr;
    all.add(text, static_cast<TokenId>(i));
    if (type == Type::kUnknown) unknown = text;
    if (type == Type::kNormal) symbols.add(text, static_cast<TokenId>(i));
  }
  if (unknown.empty() || !symbols.find(kSpaceMark)) return nullptr;
  // A token's text that is no symbol must never be met: those are long, and symbols begin as one
  // character.
  const std::vector<uint32_t> ranks = ranks_of(model.pieces);
  MergeTable merges;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const std::string_view text = model.pieces[i].text;
    if (model.pieces[i].type != Type::kNormal) {
      if (unicode::length(text) < 2) return nullptr;
      continue;
    }
    for (size_t at = 0; at < text.size(); at += unicode::decode(text, at).size) {
      points.pass();
      if (!symbols.find(text.substr(at, unicode::decode(text, at).size))) return nullptr;
      const auto left = symbols.find(text.substr(0, at)), right = symbols.find(text.substr(at));
      if (at > 0 && left && right) merges.add(*left, *right, ranks[i], static_cast<TokenId>(i));
    }
  }
  BpeOptions options;
  options.unknown = unknown;
  options.has_unknown = options.fuse_unknown = true;
  options.byte_fallback = model.byte_fallback;
  return std::make_unique<ScoredBpe>(
      make_bpe(std::move(options), std::move(all), std::move(merges)), model.add_dummy_prefix);
}

}  // namespace kvcal::tokenizers
