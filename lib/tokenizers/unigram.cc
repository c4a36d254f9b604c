#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/safe_points.h"
#include "tokenizers/components.h"
#include "tokenizers/token_model.h"
#include "tokenizers/token_trie.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// How much worse than the worst token an unknown code point is. Source: `tokenizers`,
/// K_UNK_PENALTY.
constexpr double kUnknownPenalty = 10.0;

/// At every place of a text, tokens are tried up to this length in bytes.
constexpr size_t kLongestToken = 4096;

/// The likeliest cover of a text by tokens (Viterbi). Source: `tokenizers`, models/unigram,
/// encode_optimized.
class Unigram : public TokenModel {
 public:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unknown,
          bool byte_fallback)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        unknown_(unknown),
        fallback_(byte_fallback ? byte_tokens(vocabulary_) : std::vector<TokenId>()) {
    double worst = std::numeric_limits<double>::infinity();
    SafePoints points;
    for (size_t i = 0; i < scores_.size(); ++i) {
      points.pass();
      worst = std::min(worst, scores_[i]);
      // A text that is there twice has the last id.
      const auto id = static_cast<TokenId>(i);
      const std::string_view text = *vocabulary_.text_of(id);
      trie_.add(text, *vocabulary_.find(text));
    }
    unknown_score_ = worst - kUnknownPenalty;
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const override {
    scratch.cache.encode(piece, ids, [&] { cover(piece, scratch, ids); });
  }

 private:
  void cover(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const {
    auto& paths = scratch.paths;
    paths.assign(text.size() + 1, {});
    SafePoints points(1024);  // each place may begin many long tokens
    for (size_t at = 0; at < text.size();) {
      points.pass();
      const double score_here = paths[at].score;
      const size_t size = unicode::decode(text, at).size;
      const auto offer = [&](size_t length, double score, TokenId id) {
        Scratch::Path& target = paths[at + length];
        if (target.start >= 0 && score <= target.score) return;
        target = {score, id, static_cast<int64_t>(at)};
      };
      bool has_single = false;
      trie_.prefixes(text.substr(at), [&](size_t length, TokenId id) {
        offer(length, scores_[static_cast<size_t>(id)] + score_here, id);
        has_single = has_single || length == size;
      });
      if (!has_single) {
        const double score = unknown_score_ + score_here;
        const Scratch::Path& target = paths[at + size];
        if ((target.start < 0 || score > target.score) && !unknown_)
          fail("no token for '", text.substr(at, size), "', and there is no unk_id");
        offer(size, score, unknown_.value_or(0));
      }
      at += size;
    }
    backtrack(text, paths, ids);
  }

  /// Walks the best path from its end; neighbouring unknown tokens become one.
  void backtrack(std::string_view text, const std::vector<Scratch::Path>& paths,
                 std::vector<TokenId>& ids) const {
    const size_t before = ids.size();
    size_t end = text.size(), unknown_end = 0;
    while (end > 0) {
      const Scratch::Path& path = paths[end];
      const auto start = static_cast<size_t>(path.start);
      if (unknown_ && path.id == *unknown_) {
        if (unknown_end == 0) unknown_end = end;
        const bool goes_on = start > 0 && paths[start].id == *unknown_;
        if (!goes_on) {
          append_unknown(text.substr(start, unknown_end - start), ids);
          unknown_end = 0;
        }
      } else {
        ids.push_back(path.id);
      }
      end = start;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  }

  /// Appends, last first, what stands for a text that no token covers.
  void append_unknown(std::string_view text, std::vector<TokenId>& ids) const {
    if (const auto id = vocabulary_.find(text)) {
      ids.push_back(*id);
      return;
    }
    const auto has_token = [&](char byte) {
      return fallback_[static_cast<unsigned char>(byte)] >= 0;
    };
    if (fallback_.empty() || !std::all_of(text.begin(), text.end(), has_token)) {
      ids.push_back(*unknown_);
      return;
    }
    for (size_t i = text.size(); i-- > 0;)
      ids.push_back(fallback_[static_cast<unsigned char>(text[i])]);
  }

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  std::optional<TokenId> unknown_;
  std::vector<TokenId> fallback_;
  double unknown_score_ = 0.0;
  TokenTrie trie_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const Json& object) {
  const Json& vocab = required_array(object, "vocab");
  if (vocab.size() > (size_t{1} << 26))
    fail("vocabulary of ", vocab.size(), " tokens is too large");
  Vocabulary vocabulary;
  std::vector<double> scores;
  SafePoints points;
  for (size_t i = 0; i < vocab.size(); ++i) {
    points.pass();
    const Json& entry = vocab[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      fail("vocab[", i, "] is not [\"text\", score]");
    if (const size_t size = entry[0].get_ref<const std::string&>().size(); size > kLongestToken)
      fail("vocab[", i, "] has ", size, " bytes, the limit is ", kLongestToken);
    vocabulary.add(entry[0].get_ref<const std::string&>(), static_cast<TokenId>(i));
    scores.push_back(entry[1].get<double>());
  }
  std::optional<TokenId> unknown;
  if (const auto id = optional_int(object, "unk_id")) {
    if (*id < 0 || *id >= static_cast<int64_t>(scores.size()))
      fail("key 'unk_id' is ", *id, ", the vocabulary has ", counted(scores.size(), "token"));
    unknown = static_cast<TokenId>(*id);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unknown,
                                   optional_bool(object, "byte_fallback").value_or(false));
}

}  // namespace kvcal::tokenizers
