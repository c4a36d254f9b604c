#include "eval/continuation_scores.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/interrupt.h"
#include "eval/logit_rows.h"
#include "eval/shared_prefixes.h"

namespace kvcal {
namespace {

/// Tokens that go through the layers together.
constexpr size_t kPackTokens = 1024;
/// Logits are [rows, vocabulary]: 128 rows of 150,000 are 77 MB.
constexpr size_t kLogitRows = 128;

/// The last token predicts nothing that is scored.
int64_t fed_tokens(const ContinuationIds& text) {
  return std::ssize(text.context) + std::ssize(text.continuation) - 1;
}

}  // namespace

/// One run over some texts.
class ContinuationScorer::Pass {
 public:
  Pass(ContinuationScorer& scorer, std::span<const ContinuationIds> texts, int64_t slots)
      : scorer_(scorer),
        texts_(texts),
        sequences_(distinct_sequences(texts)),
        free_slots_(static_cast<size_t>(std::clamp<int64_t>(slots, 1, std::ssize(sequences_)))),
        cache_(scorer.model_.decoder.make_cache(scorer.model_.cache, scorer.model_.scales,
                                                longest_text(texts), std::ssize(free_slots_))),
        scores_(texts.size(), ContinuationScore{.is_greedy = true}) {
    std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  }

  std::vector<ContinuationScore> run() {
    // Attention that selects keys reads a short part whole, in another order than selected keys.
    const bool may_share = !scorer_.model_.decoder.config().selects_keys(longest_text(texts_));
    const std::vector<SharedPart> parts =
        parts_of_sequences(may_share ? std::ssize(free_slots_) - 1 : 0);
    std::vector<Ready> ready;
    for (const SharedPart& part : parts) ready.push_back({&part});
    run_all(std::move(ready));
    return std::move(scores_);
  }

  int64_t tokens_run() const { return tokens_run_; }

 private:
  /// A sequence that the model reads, and the texts that it is of.
  struct Fed {
    std::vector<TokenId> ids;
    std::vector<size_t> texts;
    size_t first_row = 0;  ///< the first whose logits a text needs
  };

  /// A part whose sequences' tokens before it are in a slot; none where it begins them.
  struct Ready {
    const SharedPart* part = nullptr;
    int64_t before = kNoSlot, slot = kNoSlot;
  };
  static constexpr int64_t kNoSlot = -1;

  /// A row of logits: the part's sequences read the token at `index`.
  struct Row {
    const SharedPart* part = nullptr;
    size_t index = 0;
  };

  /// In lexicographic order of those whose ropes are alike, so that shared_parts may share them.
  std::vector<Fed> distinct_sequences(std::span<const ContinuationIds> texts) const {
    std::map<std::pair<std::vector<int64_t>, std::vector<TokenId>>, std::vector<size_t>> same;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& [context, continuation] = texts[i];
      if (context.empty() || continuation.empty())
        fail("text ", i, " has no ", context.empty() ? "context" : "continuation");
      std::vector<TokenId> ids = context;
      ids.insert(ids.end(), continuation.begin(), continuation.end() - 1);
      same[{blocks_of(ids.size()), ids}].push_back(i);
    }
    std::vector<Fed> sequences;
    for (auto& [key, of] : same) {
      Fed fed{.ids = key.second, .texts = std::move(of)};
      fed.first_row = fed.ids.size();
      for (const size_t text : fed.texts)
        fed.first_row = std::min(fed.first_row, texts[text].context.size() - 1);
      sequences.push_back(std::move(fed));
    }
    return sequences;
  }

  /// The parts of all sequences, of those apart whose ropes differ.
  std::vector<SharedPart> parts_of_sequences(int64_t most_height) const {
    std::vector<SharedPart> all;
    const auto block = [&](size_t i) { return blocks_of(sequences_[i].ids.size()); };
    for (size_t first = 0; first < sequences_.size();) {
      std::vector<std::span<const TokenId>> ids;
      size_t last = first;
      for (; last < sequences_.size() && block(last) == block(first); ++last)
        ids.emplace_back(sequences_[last].ids);
      for (SharedPart& part : shared_parts(ids, most_height))
        all.push_back(moved(std::move(part), first));
      first = last;
    }
    return all;
  }

  std::vector<int64_t> blocks_of(size_t length) const {
    std::vector<int64_t> blocks;
    for (const RopeConfig& rope : scorer_.model_.decoder.config().ropes)
      blocks.push_back(rope_block(rope, static_cast<int64_t>(length)));
    return blocks;
  }

  static SharedPart moved(SharedPart part, size_t by) {
    part.first += by;
    part.last += by;
    for (SharedPart& next : part.next) next = moved(std::move(next), by);
    return part;
  }

  /// Runs the parts and all that follow them. The longest go first: a step of long ones then leaves
  /// room for short ones, never the reverse.
  void run_all(std::vector<Ready> ready) {
    std::ranges::stable_sort(ready, std::ranges::greater{},
                             [](const Ready& one) { return one.part->size(); });
    for (size_t first = 0; first < ready.size();) {
      const std::span<Ready> pack = std::span(ready).subspan(first, packed_from(ready, first));
      for (Ready& one : pack) {
        one.slot = free_slots_.back();
        free_slots_.pop_back();
      }
      std::ranges::sort(pack, std::ranges::less{}, &Ready::slot);
      run_pack(pack);
      std::vector<Ready> next;
      for (const Ready& one : pack)
        for (const SharedPart& part : one.part->next) next.push_back({&part, one.slot});
      run_all(std::move(next));
      for (const Ready& one : pack) free_slots_.push_back(one.slot);
      first += pack.size();
    }
  }

  /// How many parts go together: those that fit into one step, or a longer one alone, and leave
  /// slots for what follows them. One of a single token goes only with its like, as
  /// Decoder::step_together's bytes ask for.
  size_t packed_from(std::span<const Ready> ready, size_t first) const {
    size_t count = 0, tokens = 0;
    int64_t height = 0;
    const bool is_single = ready[first].part->size() == 1;
    while (first + count < ready.size()) {
      const SharedPart& part = *ready[first + count].part;
      height = std::max(height, part.height());
      const auto left = std::ssize(free_slots_) - static_cast<int64_t>(count) - 1;
      const bool has_room =
          height == 0 ? left >= 0 : left >= height && left > static_cast<int64_t>(count);
      const bool fits = tokens + part.size() <= kPackTokens && (part.size() == 1) == is_single;
      if (count > 0 && !(fits && has_room)) break;
      tokens += part.size();
      ++count;
    }
    return count;
  }

  void run_pack(std::span<const Ready> pack) {
    size_t longest = 0;
    for (const Ready& one : pack) {
      cache_.clear(one.slot);
      if (one.before != kNoSlot) cache_.copy(one.before, one.slot);
      longest = std::max(longest, one.part->size());
    }
    for (size_t begin = 0; begin < longest; begin += kPackTokens) {
      throw_if_interrupted();
      std::vector<Decoder::SequenceTokens> sequences;
      std::vector<int32_t> places;
      std::vector<Row> rows;
      size_t placed = 0;
      for (const Ready& one : pack) {
        const std::vector<TokenId>& whole = sequences_[one.part->first].ids;
        const size_t from = one.part->begin + begin;
        const std::span<const TokenId> ids =
            std::span(whole).subspan(from, std::min(kPackTokens, one.part->end - from));
        for (size_t row = std::max(from, first_row(*one.part)); row < from + ids.size(); ++row) {
          rows.push_back({one.part, row});
          places.push_back(static_cast<int32_t>(placed + row - from));
        }
        placed += ids.size();
        sequences.push_back({.slot = one.slot, .ids = ids, .whole_length = std::ssize(whole)});
      }
      tokens_run_ += static_cast<int64_t>(placed);
      Decoder& decoder = scorer_.model_.decoder;
      const Buffer hidden = decoder.step_hidden_together(sequences, cache_);
      for (size_t row = 0; row < rows.size(); row += kLogitRows) {
        const size_t count = std::min(kLogitRows, rows.size() - row);
        add(std::span(rows).subspan(row, count),
            decoder.logits_at(hidden, std::span(places).subspan(row, count)));
      }
    }
  }

  std::span<const Fed> sequences_of(const SharedPart& part) const {
    return std::span(sequences_).subspan(part.first, part.last - part.first);
  }

  /// The first row of logits that a sequence of the part needs.
  size_t first_row(const SharedPart& part) const {
    size_t first = part.end;
    for (const Fed& fed : sequences_of(part)) first = std::min(first, fed.first_row);
    return first;
  }

  void add(std::span<const Row> rows, std::span<const float> logits) {
    throw_if_interrupted();
    const size_t vocab = logits.size() / rows.size();
    std::vector<LogitRow> described(rows.size());
    scorer_.threads_.parallel_for(std::ssize(rows), [&](int64_t index, int) {
      const auto i = static_cast<size_t>(index);
      described[i] = describe(logits.subspan(i * vocab, vocab));
    });
    for (size_t i = 0; i < rows.size(); ++i)
      for (const Fed& fed : sequences_of(*rows[i].part))
        for (const size_t text : fed.texts)
          add(text, rows[i].index, logits.subspan(i * vocab, vocab), described[i]);
  }

  void add(size_t text, size_t row, std::span<const float> logits, const LogitRow& described) {
    const auto& [context, continuation] = texts_[text];
    if (row + 1 < context.size()) return;
    const TokenId id = continuation[row + 1 - context.size()];
    if (id < 0 || id >= std::ssize(logits))
      fail("token id ", id, " is outside the vocabulary of ", logits.size());
    ContinuationScore& score = scores_[text];
    score.log_probability +=
        static_cast<double>(logits[static_cast<size_t>(id)]) - described.log_sum;
    score.is_greedy = score.is_greedy && described.top == id;
  }

  ContinuationScorer& scorer_;
  std::span<const ContinuationIds> texts_;
  std::vector<Fed> sequences_;
  std::vector<int64_t> free_slots_;
  KvCache cache_;
  std::vector<ContinuationScore> scores_;
  int64_t tokens_run_ = 0;
};

ContinuationScorer::ContinuationScorer(const ScoredModel& model, int num_threads)
    : model_(model), threads_(num_threads) {}

std::vector<ContinuationScore> ContinuationScorer::score(std::span<const ContinuationIds> texts,
                                                         int64_t slots, int64_t* tokens_run) {
  if (tokens_run) *tokens_run = 0;
  if (texts.empty()) return {};
  Pass pass(*this, texts, slots);
  std::vector<ContinuationScore> scores = pass.run();
  if (tokens_run) *tokens_run = pass.tokens_run();
  return scores;
}

int64_t ContinuationScorer::longest_text(std::span<const ContinuationIds> texts) {
  int64_t longest = 0;
  for (const ContinuationIds& text : texts) longest = std::max(longest, fed_tokens(text));
  return longest;
}

}  // namespace kvcal
