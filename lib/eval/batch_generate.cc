#include "eval/batch_generate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/interrupt.h"

namespace kvcal {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time until it goes out of scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

/// The text that a slot is writing.
struct Writing {
  size_t prompt = 0;
  Sampler sampler;
  std::vector<TokenId> ids = {};
  std::vector<TokenId> seen = {};  ///< sorted: of prompt and text, where repetition is penalized
};

class BatchWriter {
 public:
  BatchWriter(Decoder& decoder, KvCache& cache, std::span<const BatchPrompt> prompts,
              const BatchOptions& options)
      : decoder_(decoder),
        cache_(cache),
        prompts_(prompts),
        options_(options),
        writing_(static_cast<size_t>(cache.slots())) {}

  BatchUse run() {
    for (;;) {
      for (size_t slot = 0; slot < writing_.size(); ++slot)
        while (!writing_[slot] && next_ < prompts_.size()) begin(slot, next_++);
      if (std::ranges::none_of(writing_, [](const auto& one) { return one.has_value(); }))
        return use_;
      step();
    }
  }

 private:
  /// Alone, so that its bytes do not depend on which prompts stand beside it in the queue.
  void begin(size_t slot, size_t prompt) {
    throw_if_interrupted();
    const std::vector<TokenId>& ids = prompts_[prompt].ids;
    if (ids.empty()) fail("prompt ", prompt, " has no token");
    Writing text{.prompt = prompt, .sampler = sampler_of(prompt)};
    if (prompts_[prompt].max_new_tokens <= 0) return finish(slot, std::move(text));
    cache_.clear(static_cast<int64_t>(slot));
    const Decoder::SequenceTokens sequence{.slot = static_cast<int64_t>(slot), .ids = ids};
    std::vector<float> logits;
    {
      const Stopwatch watch(use_.prefill_seconds);
      logits = logits_after(std::span(&sequence, 1), [&](size_t) { return prompt; });
    }
    use_.prompt_tokens += std::ssize(ids);
    writing_[slot] = std::move(text);
    if (options_.repetition_penalty != 1.0f) {
      writing_[slot]->seen = ids;
      std::vector<TokenId>& seen = writing_[slot]->seen;
      std::ranges::sort(seen);
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    }
    append(slot, logits);
  }

  /// Names the prompt whose logits are not finite.
  template <class PromptOf>
  std::vector<float> logits_after(std::span<const Decoder::SequenceTokens> sequences,
                                  const PromptOf& prompt_of) {
    try {
      return decoder_.step_together(sequences, cache_);
    } catch (NotFiniteLogits& error) {
      error.add_context("prompt " + std::to_string(prompt_of(static_cast<size_t>(error.row()))));
      throw;
    }
  }

  Sampler sampler_of(size_t prompt) const {
    SamplingOptions sampling = options_.sampling;
    sampling.seed += prompt;
    return Sampler(sampling);
  }

  /// One more token of all texts.
  void step() {
    throw_if_interrupted();
    std::vector<Decoder::SequenceTokens> sequences;
    for (size_t slot = 0; slot < writing_.size(); ++slot)
      if (const auto& one = writing_[slot])
        sequences.push_back(
            {.slot = static_cast<int64_t>(slot), .ids = std::span(one->ids).last(1)});
    std::vector<float> logits;
    {
      const Stopwatch watch(use_.decode_seconds);
      logits = logits_after(sequences, [&](size_t i) {
        return writing_[static_cast<size_t>(sequences[i].slot)]->prompt;
      });
    }
    ++use_.num_steps;
    const size_t vocab = logits.size() / sequences.size();
    for (size_t i = 0; i < sequences.size(); ++i)
      append(static_cast<size_t>(sequences[i].slot), std::span(logits).subspan(i * vocab, vocab));
  }

  void append(size_t slot, std::span<float> logits) {
    Writing& writing = *writing_[slot];
    for (const TokenId id : writing.seen) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit < 0 ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
    }
    const TokenId id = writing.sampler.pick(logits);
    writing.ids.push_back(id);
    ++use_.new_tokens;
    if (options_.repetition_penalty != 1.0f) {
      const auto place = std::ranges::lower_bound(writing.seen, id);
      if (place == writing.seen.end() || *place != id) writing.seen.insert(place, id);
    }
    const bool is_full = std::ssize(writing.ids) == prompts_[writing.prompt].max_new_tokens;
    if (is_full || (options_.is_end && options_.is_end(writing.ids)))
      finish(slot, std::move(writing));
  }

  void finish(size_t slot, Writing text) {
    writing_[slot].reset();
    if (options_.on_text) options_.on_text(text.prompt, std::move(text.ids));
  }

  Decoder& decoder_;
  KvCache& cache_;
  std::span<const BatchPrompt> prompts_;
  const BatchOptions& options_;
  std::vector<std::optional<Writing>> writing_;  ///< by slot
  size_t next_ = 0;                              ///< prompt
  BatchUse use_;
};

}  // namespace

BatchUse generate_together(Decoder& decoder, KvCache& cache, std::span<const BatchPrompt> prompts,
                           const BatchOptions& options) {
  return BatchWriter(decoder, cache, prompts, options).run();
}

int64_t fitting_slots(const ModelConfig& config, const CacheType& type,
                      const std::vector<LayerKvScales>& scales, int64_t tokens,
                      std::optional<uint64_t> cache_bytes) {
  if (!cache_bytes) return kTextsTogether;
  const uint64_t each = KvCache::bytes_per_slot(config, type, scales, tokens);
  return static_cast<int64_t>(
      std::clamp<uint64_t>(*cache_bytes / std::max<uint64_t>(each, 1), 1, kTextsTogether));
}

int64_t longest_text(std::span<const BatchPrompt> prompts) {
  int64_t longest = 0;
  for (const BatchPrompt& prompt : prompts)
    // The last new token is never fed.
    longest = std::max(longest, std::ssize(prompt.ids) + prompt.max_new_tokens - 1);
  return longest;
}

}  // namespace kvcal
