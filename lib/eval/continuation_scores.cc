#include "eval/continuation_scores.h"

#include <algorithm>
#include <map>

#include "core/interrupt.h"
#include "eval/logit_rows.h"

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
        slots_(static_cast<size_t>(std::clamp<int64_t>(slots, 1, std::ssize(sequences_)))),
        cache_(scorer.model_.decoder.make_cache(scorer.model_.cache, scorer.model_.scales,
                                                longest_text(texts), static_cast<int64_t>(slots_))),
        scores_(texts.size(), ContinuationScore{.is_greedy = true}) {}

  std::vector<ContinuationScore> run() {
    for (size_t first = 0; first < sequences_.size();) {
      const size_t count = packed_from(first);
      run_pack(std::span(sequences_).subspan(first, count));
      first += count;
    }
    return std::move(scores_);
  }

 private:
  /// A sequence that the model reads, and the texts that it is of.
  struct Fed {
    std::vector<TokenId> ids;
    std::vector<size_t> texts;
    size_t first_row = 0;  ///< the first whose logits a text needs
  };

  /// A row of logits, and the sequence's token that it predicts.
  struct Row {
    const Fed* fed = nullptr;
    size_t index = 0;
  };

  /// The longest first: a step of long ones then leaves room for short ones, never the reverse.
  static std::vector<Fed> distinct_sequences(std::span<const ContinuationIds> texts) {
    std::map<std::vector<TokenId>, std::vector<size_t>> same;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& [context, continuation] = texts[i];
      if (context.empty() || continuation.empty())
        fail("text ", i, " has no ", context.empty() ? "context" : "continuation");
      std::vector<TokenId> ids = context;
      ids.insert(ids.end(), continuation.begin(), continuation.end() - 1);
      same[std::move(ids)].push_back(i);
    }
    std::vector<Fed> sequences;
    for (auto& [ids, of] : same) {
      Fed fed{.ids = ids, .texts = std::move(of)};
      fed.first_row = fed.ids.size();
      for (const size_t text : fed.texts)
        fed.first_row = std::min(fed.first_row, texts[text].context.size() - 1);
      sequences.push_back(std::move(fed));
    }
    std::ranges::stable_sort(sequences, std::ranges::greater{},
                             [](const Fed& fed) { return fed.ids.size(); });
    return sequences;
  }

  /// How many sequences go together: those that fit into one step, or a longer one alone. One of a
  /// single token goes only with its like, as Decoder::step_together's bytes ask for.
  size_t packed_from(size_t first) const {
    size_t count = 1, tokens = sequences_[first].ids.size();
    const bool is_single = tokens == 1;
    while (first + count < sequences_.size() && count < slots_) {
      const size_t more = sequences_[first + count].ids.size();
      if (tokens + more > kPackTokens || (more == 1) != is_single) break;
      tokens += more;
      ++count;
    }
    return count;
  }

  void run_pack(std::span<const Fed> pack) {
    for (size_t slot = 0; slot < pack.size(); ++slot) cache_.clear(static_cast<int64_t>(slot));
    for (size_t begin = 0; begin < pack.front().ids.size(); begin += kPackTokens) {
      throw_if_interrupted();
      std::vector<Decoder::SequenceTokens> sequences;
      std::vector<int32_t> places;
      std::vector<Row> rows;
      size_t placed = 0;
      for (const Fed& fed : pack) {
        const std::span<const TokenId> ids =
            std::span(fed.ids).subspan(begin, std::min(kPackTokens, fed.ids.size() - begin));
        for (size_t row = std::max(begin, fed.first_row); row < begin + ids.size(); ++row) {
          rows.push_back({&fed, row});
          places.push_back(static_cast<int32_t>(placed + row - begin));
        }
        placed += ids.size();
        sequences.push_back(
            {.slot = std::ssize(sequences), .ids = ids, .whole_length = std::ssize(fed.ids)});
      }
      Decoder& decoder = scorer_.model_.decoder;
      const Buffer hidden = decoder.step_hidden_together(sequences, cache_);
      for (size_t row = 0; row < rows.size(); row += kLogitRows) {
        const size_t count = std::min(kLogitRows, rows.size() - row);
        add(std::span(rows).subspan(row, count),
            decoder.logits_at(hidden, std::span(places).subspan(row, count)));
      }
    }
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
      for (const size_t text : rows[i].fed->texts)
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
  size_t slots_;
  KvCache cache_;
  std::vector<ContinuationScore> scores_;
};

ContinuationScorer::ContinuationScorer(const ScoredModel& model, int num_threads)
    : model_(model), threads_(num_threads) {}

std::vector<ContinuationScore> ContinuationScorer::score(std::span<const ContinuationIds> texts,
                                                         int64_t slots) {
  if (texts.empty()) return {};
  return Pass(*this, texts, slots).run();
}

int64_t ContinuationScorer::longest_text(std::span<const ContinuationIds> texts) {
  int64_t longest = 0;
  for (const ContinuationIds& text : texts) longest = std::max(longest, fed_tokens(text));
  return longest;
}

}  // namespace kvcal
