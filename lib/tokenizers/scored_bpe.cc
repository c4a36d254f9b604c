#include <algorithm>

#include "tokenizers/bpe.h"
#include "tokenizers/model_proto.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
/// A piece is split at each of its characters; longer ones are left to the library.
constexpr size_t kLongestPiece = 512;

bool has_plain_settings(const ModelProto& model) {
  return model.is_bpe && !model.has_charsmap && !model.remove_extra_whitespaces &&
         model.escape_whitespaces && !model.treat_whitespace_as_suffix;
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

}  // namespace

std::unique_ptr<ScoredBpe> ScoredBpe::make(const ModelProto& model) {
  using Type = ModelProto::PieceType;
  if (!has_plain_settings(model)) return nullptr;
  Vocabulary symbols, all;
  std::string unknown;
  size_t splits = 0;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& [text, score, type] = model.pieces[i];
    const bool is_odd = type == Type::kUserDefined || type == Type::kUnused ||
                        text.size() > kLongestPiece || all.find(text) ||
                        (type == Type::kNormal && has_mark_inside(text));
    if (is_odd) return nullptr;
    all.add(text, static_cast<TokenId>(i));
    if (type == Type::kUnknown) unknown = text;
    if (type == Type::kNormal) symbols.add(text, static_cast<TokenId>(i));
    splits += unicode::length(text);
  }
  if (unknown.empty() || !symbols.find(kSpaceMark)) return nullptr;
  // A token's text that is no symbol must never be met: those are long, and symbols begin as one
  // character.
  const std::vector<uint32_t> ranks = ranks_of(model.pieces);
  MergeTable merges(splits);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const std::string_view text = model.pieces[i].text;
    if (model.pieces[i].type != Type::kNormal) {
      if (unicode::length(text) < 2) return nullptr;
      continue;
    }
    for (size_t at = 0; at < text.size(); at += unicode::decode(text, at).size) {
      if (!symbols.find(text.substr(at, unicode::decode(text, at).size))) return nullptr;
      const auto left = symbols.find(text.substr(0, at)), right = symbols.find(text.substr(at));
      if (at > 0 && left && right) merges.add({*left, *right}, ranks[i], static_cast<TokenId>(i));
    }
  }
  BpeOptions options;
  options.unknown = unknown;
  options.has_unknown = options.fuse_unknown = true;
  options.byte_fallback = model.byte_fallback;
  return std::unique_ptr<ScoredBpe>(
      new ScoredBpe(make_bpe(std::move(options), std::move(all), std::move(merges))));
}

void ScoredBpe::encode(std::string_view text, bool mark_start, std::vector<TokenId>& ids) const {
  if (text.empty()) return;
  std::string marked;
  marked.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (mark_start) marked += kSpaceMark;
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

}  // namespace kvcal::tokenizers
