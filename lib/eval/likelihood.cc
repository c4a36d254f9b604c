#include "eval/likelihood.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/interrupt.h"
#include "eval/logit_rows.h"

namespace kvcal {
namespace {

/// Tokens that go through the layers together.
constexpr size_t kStepTokens = 1024;
/// Logits are [rows, vocabulary]: 128 rows of 150,000 are 77 MB.
constexpr int64_t kBlockRows = 128;
/// Layers whose caches and residual streams are kept side by side, and bytes of those caches.
constexpr size_t kMostBranches = 8;
constexpr uint64_t kBranchCacheBytes = uint64_t{1} << 29;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The standard error of the mean; 0 for one value.
double standard_error(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return 0.0;
  double sum = 0.0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(sum / (count - 1.0) / count);
}

/// The least value that fraction of all do not exceed.
double quantile_of(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Only that layer's cache is as scales say.
std::vector<LayerKvScales> scales_of_only(const std::vector<LayerKvScales>& scales, int64_t layer) {
  std::vector<LayerKvScales> only(scales.size());
  for (LayerKvScales& one : only) one.ignored = true;
  only[static_cast<size_t>(layer)] = scales[static_cast<size_t>(layer)];
  return only;
}

}  // namespace

/// A sequence and the tokens of it to score.
struct Scorer::Scored {
  std::span<const TokenId> ids;
  size_t first_scored = 1;
  /// The last token predicts nothing that could be scored.
  std::span<const TokenId> fed() const { return ids.first(ids.size() - 1); }
  /// Of the sequence as transformers runs it, with the last token; ropes depend on it.
  int64_t length() const { return std::ssize(ids); }
};

/// The residual stream of consecutive tokens of a sequence after a model's last layer.
struct Scorer::Stream {
  Decoder* decoder = nullptr;
  Buffer hidden;
};

Scorer::Scorer(std::vector<ScoredModel> models, std::optional<ScoredModel> reference,
               int num_threads)
    : models_(std::move(models)), reference_(reference), threads_(num_threads) {
  KVCAL_CHECK(!models_.empty());
  const ModelConfig& first = (reference_ ? *reference_ : models_[0]).decoder.config();
  for (const ScoredModel& model : models_)
    if (model.decoder.config().output_vocab_size != first.output_vocab_size)
      fail("the vocabulary has ", counted(model.decoder.config().output_vocab_size, "token"),
           ", that of the ", reference_ ? "reference " : "first model ", first.output_vocab_size);
}

Scorer::~Scorer() = default;

/// Adds the scores of a run of fed tokens, from `begin` on, to models [first, first + streams).
/// With a reference its own NLL is added, too, where wanted.
class Scorer::Comparison {
 public:
  Comparison(Scorer& scorer, const Scored& scored, size_t begin, SequenceScores& scores)
      : scorer_(scorer), scored_(scored), begin_(begin), scores_(scores) {}

  void add(const Stream* reference, std::span<const Stream> models, size_t first, size_t rows,
           bool adds_reference) {
    // Row i predicts token begin + i + 1.
    const size_t skipped =
        scored_.first_scored > begin_ + 1 ? scored_.first_scored - begin_ - 1 : 0;
    for (size_t row = skipped; row < rows; row += static_cast<size_t>(kBlockRows)) {
      throw_if_interrupted();
      const size_t count = std::min(rows - row, static_cast<size_t>(kBlockRows));
      if (reference) describe_reference(*reference, row, count, adds_reference);
      for (size_t i = 0; i < models.size(); ++i)
        add_model(models[i], scores_.models[first + i], row, count, reference != nullptr);
    }
  }

 private:
  TokenId next_id(size_t row) const { return scored_.ids[begin_ + row + 1]; }

  /// Names no token where they are not finite: attention spreads NaN over the tokens that it takes
  /// together, which are others on other processors.
  static std::vector<float> logits_of(const Stream& stream, size_t row, size_t count) {
    return stream.decoder->logits_of(stream.hidden, static_cast<int64_t>(row),
                                     static_cast<int64_t>(count));
  }

  void describe_reference(const Stream& stream, size_t row, size_t count, bool is_added) {
    logits_ = logits_of(stream, row, count);
    vocab_ = logits_.size() / count;
    probabilities_.resize(logits_.size());
    described_.resize(count);
    scorer_.threads_.parallel_for(static_cast<int64_t>(count), [&](int64_t index, int) {
      const auto i = static_cast<size_t>(index);
      described_[i] =
          describe(row_of(logits_, i), std::span(probabilities_).subspan(i * vocab_, vocab_));
    });
    if (!is_added) return;
    for (size_t i = 0; i < count; ++i)
      scores_.reference_nll.push_back(nll_of(row_of(logits_, i), described_[i], next_id(row + i)));
  }

  void add_model(const Stream& stream, TokenScores& scores, size_t row, size_t count,
                 bool has_reference) {
    const std::vector<float> logits = logits_of(stream, row, count);
    vocab_ = logits.size() / count;
    const size_t before = scores.nll.size();
    scores.nll.resize(before + count);
    if (has_reference) {
      scores.kl.resize(before + count);
      scores.same_top.resize(before + count);
    }
    scorer_.threads_.parallel_for(static_cast<int64_t>(count), [&](int64_t index, int) {
      const auto i = static_cast<size_t>(index);
      const LogitRow described = describe(row_of(logits, i));
      scores.nll[before + i] = nll_of(row_of(logits, i), described, next_id(row + i));
      if (!has_reference) return;
      scores.kl[before + i] =
          kl_divergence(row_of(logits_, i), described_[i],
                        std::span<const float>(probabilities_).subspan(i * vocab_, vocab_),
                        row_of(logits, i), described);
      scores.same_top[before + i] = described.top == described_[i].top ? 1 : 0;
    });
  }

  std::span<const float> row_of(const std::vector<float>& logits, size_t row) const {
    return std::span(logits).subspan(row * vocab_, vocab_);
  }
  static double nll_of(std::span<const float> logits, const LogitRow& row, TokenId id) {
    return row.log_sum - static_cast<double>(logits[static_cast<size_t>(id)]);
  }

  Scorer& scorer_;
  const Scored& scored_;
  size_t begin_;
  SequenceScores& scores_;
  // The reference's rows of the present block:
  std::vector<float> logits_, probabilities_;
  std::vector<LogitRow> described_;
  size_t vocab_ = 0;
};

SequenceScores Scorer::empty_scores(const Scored& scored, size_t num_models) const {
  KVCAL_CHECK(scored.first_scored >= 1);
  SequenceScores scores;
  scores.models.resize(num_models);
  const int64_t predicted = models_[0].decoder.config().output_vocab_size;
  for (size_t i = scored.first_scored; i < scored.ids.size(); ++i) {
    if (scored.ids[i] >= predicted)
      fail("token ", i, " is id ", scored.ids[i], ", and lm_head predicts ids below ", predicted);
    scores.positions.push_back(static_cast<int64_t>(i));
  }
  return scores;
}

template <class StreamsOf>
void Scorer::score_steps(const Scored& scored, size_t first, SequenceScores& scores,
                         const StreamsOf& streams_of) {
  const auto fed = scored.fed();
  for (size_t begin = 0; begin < fed.size(); begin += kStepTokens) {
    throw_if_interrupted();
    const std::span step = fed.subspan(begin, std::min(kStepTokens, fed.size() - begin));
    const std::vector<Stream> streams = streams_of(step);
    const std::span models = std::span(streams).first(streams.size() - (reference_ ? 1 : 0));
    Comparison(*this, scored, begin, scores)
        .add(reference_ ? &streams.back() : nullptr, models, first, step.size(), first == 0);
  }
}

SequenceScores Scorer::score(std::span<const TokenId> ids, size_t first_scored) {
  const Scored scored{ids, first_scored};
  SequenceScores scores = empty_scores(scored, models_.size());
  if (scores.positions.empty()) return scores;
  const int64_t whole = scored.length();
  std::vector<ScoredModel> all = models_;
  if (reference_) all.push_back(*reference_);
  std::vector<KvCache> caches;
  for (const ScoredModel& model : all) caches.push_back(cache_of(model, whole));
  score_steps(scored, 0, scores, [&](std::span<const TokenId> step) {
    std::vector<Stream> streams;
    for (size_t i = 0; i < all.size(); ++i)
      streams.push_back({&all[i].decoder, all[i].decoder.step_hidden(step, caches[i], whole)});
    return streams;
  });
  return scores;
}

SequenceScores Scorer::score_layers(std::span<const TokenId> ids, size_t first_scored, size_t model,
                                    std::span<const int64_t> layers) {
  KVCAL_CHECK(can_score_layers(model));
  const Scored scored{ids, first_scored};
  SequenceScores scores = empty_scores(scored, layers.size());
  if (scores.positions.empty()) return scores;
  const uint64_t cache_bytes = KvCache::bytes_per_slot(
      reference_->decoder.config(), reference_->cache, {}, static_cast<int64_t>(ids.size()));
  const auto fitting = static_cast<size_t>(kBranchCacheBytes / std::max<uint64_t>(cache_bytes, 1));
  const size_t together = std::clamp<size_t>(fitting, 1, kMostBranches);
  for (size_t first = 0; first < layers.size(); first += together)
    score_branches(scored, models_[model],
                   layers.subspan(first, std::min(together, layers.size() - first)), first, scores);
  return scores;
}

void Scorer::score_branches(const Scored& scored, const ScoredModel& model,
                            std::span<const int64_t> layers, size_t first, SequenceScores& scores) {
  const int64_t whole = scored.length();
  Decoder& decoder = reference_->decoder;
  KvCache reference_cache = cache_of(*reference_, whole);
  std::vector<KvCache> caches;
  for (const int64_t layer : layers)
    caches.push_back(decoder.make_cache(model.cache, scales_of_only(model.scales, layer), whole));
  std::vector<Decoder::Branch> branches;
  for (size_t i = 0; i < layers.size(); ++i) branches.push_back({layers[i], caches[i]});
  score_steps(scored, first, scores, [&](std::span<const TokenId> step) {
    std::vector<Stream> streams;
    for (Buffer& hidden : decoder.step_branches(step, reference_cache, branches, whole))
      streams.push_back({&decoder, std::move(hidden)});
    return streams;
  });
}

KvCache Scorer::cache_of(const ScoredModel& model, int64_t tokens) {
  return model.decoder.make_cache(model.cache, model.scales, tokens);
}

bool Scorer::can_score_layers(size_t model) const {
  return reference_ && is_quantized(models_.at(model).cache) &&
         &models_[model].decoder == &reference_->decoder &&
         reference_->cache == unquantized_cache_dtype(reference_->decoder.config());
}

namespace {

/// All sequences as one.
struct JoinedScores {
  TokenScores scores;
  std::vector<double> reference_nll;
};

JoinedScores joined(std::span<const SequenceScores> sequences, size_t model) {
  JoinedScores all;
  for (const SequenceScores& sequence : sequences) {
    const TokenScores& scores = sequence.models.at(model);
    append(all.scores.nll, scores.nll);
    append(all.scores.kl, scores.kl);
    append(all.scores.same_top, scores.same_top);
    append(all.reference_nll, sequence.reference_nll);
  }
  return all;
}

}  // namespace

Likelihood summarize(std::span<const SequenceScores> sequences, size_t model) {
  const auto [scores, reference] = joined(sequences, model);
  if (scores.nll.empty()) fail("no token to score: a sequence needs two or more");
  Likelihood result;
  result.num_tokens = static_cast<int64_t>(scores.nll.size());
  result.nll = mean_of(scores.nll);
  result.perplexity = std::exp(result.nll);
  if (scores.kl.empty()) return result;
  result.kl_mean = mean_of(scores.kl);
  result.kl_stderr = standard_error(scores.kl, *result.kl_mean);
  result.kl_p99 = quantile_of(scores.kl, 0.99);
  result.kl_max = std::ranges::max(scores.kl);
  result.top1_agreement = static_cast<double>(std::accumulate(scores.same_top.begin(),
                                                              scores.same_top.end(), int64_t{0})) /
                          static_cast<double>(scores.nll.size());
  const double reference_nll = mean_of(reference);
  result.reference_perplexity = std::exp(reference_nll);
  const double difference = result.nll - reference_nll;
  result.perplexity_increase = std::expm1(difference);
  std::vector<double> differences = scores.nll;
  for (size_t i = 0; i < differences.size(); ++i) differences[i] -= reference[i];
  result.increase_stderr = std::exp(difference) * standard_error(differences, difference);
  return result;
}

CacheDamage damage_of(const Likelihood& result, double clipped) {
  return {.kl_mean = result.kl_mean.value(),
          .kl_stderr = result.kl_stderr.value_or(0.0),
          .perplexity_increase = result.perplexity_increase,
          .increase_stderr = result.increase_stderr.value_or(0.0),
          .clipped = clipped,
          .num_tokens = result.num_tokens};
}

PairedDifference kl_difference(std::span<const SequenceScores> sequences, size_t model,
                               size_t less) {
  std::vector<double> differences = joined(sequences, model).scores.kl;
  const std::vector<double> subtracted = joined(sequences, less).scores.kl;
  if (differences.empty()) fail("no KL to compare: there was no reference");
  for (size_t i = 0; i < differences.size(); ++i) differences[i] -= subtracted[i];
  const double mean = mean_of(differences);
  return {.mean = mean, .standard_error = standard_error(differences, mean)};
}

std::vector<PositionScores> by_position(std::span<const SequenceScores> sequences, size_t model) {
  std::vector<JoinedScores> buckets;
  for (const SequenceScores& sequence : sequences) {
    const TokenScores& scores = sequence.models.at(model);
    for (size_t i = 0; i < sequence.positions.size(); ++i) {
      const auto position = static_cast<uint64_t>(sequence.positions[i]);
      const auto octave = static_cast<size_t>(std::bit_width(position)) - 1;
      if (buckets.size() <= octave) buckets.resize(octave + 1);
      buckets[octave].scores.nll.push_back(scores.nll[i]);
      if (scores.kl.empty()) continue;
      buckets[octave].scores.kl.push_back(scores.kl[i]);
      buckets[octave].reference_nll.push_back(sequence.reference_nll[i]);
    }
  }
  std::vector<PositionScores> all;
  for (size_t octave = 0; octave < buckets.size(); ++octave) {
    const auto& [scores, reference_nll] = buckets[octave];
    if (scores.nll.empty()) continue;
    const int64_t first = int64_t{1} << octave;
    PositionScores& one = all.emplace_back(PositionScores{
        .first = first, .last = 2 * first - 1, .num_tokens = std::ssize(scores.nll)});
    const auto describe = [](const std::vector<double>& values, double& mean, double& error) {
      if (values.empty()) return;
      mean = mean_of(values);
      error = standard_error(values, mean);
    };
    describe(scores.nll, one.nll, one.nll_stderr);
    describe(scores.kl, one.kl_mean, one.kl_stderr);
    describe(reference_nll, one.reference_nll, one.reference_nll_stderr);
  }
  return all;
}

}  // namespace kvcal
