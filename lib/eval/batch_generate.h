#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/token.h"
#include "eval/sampler.h"
#include "forward/decoder.h"

namespace kvcal {

/// A text to continue.
struct BatchPrompt {
  std::vector<TokenId> ids;
  int64_t max_new_tokens = 0;
};

/// How many texts are written at a time, and how.
struct BatchOptions {
  /// Logits of tokens that stand in the prompt or the text already are divided by it where they are
  /// positive, and multiplied where negative. 1: as they are. Source: transformers
  /// `RepetitionPenaltyLogitsProcessor`.
  float repetition_penalty = 1.0f;
  /// How tokens are picked. Text i draws by a sampler of its own, whose seed is sampling.seed + i.
  SamplingOptions sampling = {};
  /// Whether a text ends with its newest token; ids: all of its new ones. Empty: none ends early.
  std::function<bool(std::span<const TokenId> ids)> is_end = {};
  /// Called with each text when it ends, in the order in which they do.
  std::function<void(size_t prompt, std::vector<TokenId> ids)> on_text = {};
};

/// The tokens and steps that generating took.
struct BatchUse {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t num_steps = 0;  ///< of decoding; each takes all texts further that are being written
  double prefill_seconds = 0.0, decode_seconds = 0.0;
};

/// Continues prompts, as many at a time as cache has slots: a text that ends makes room
/// for the next prompt at once. A text does not depend on the number of slots or on the other
/// prompts. The cache must hold each prompt and its new tokens. Throws Error for an empty prompt
/// and as Sampler and Decoder::step.
BatchUse generate_together(Decoder& decoder, KvCache& cache, std::span<const BatchPrompt> prompts,
                           const BatchOptions& options);

/// Texts that go together where nobody says how many.
inline constexpr int64_t kTextsTogether = 32;

/// kTextsTogether, or fewer, but one, where cache_bytes do not hold that many of this many tokens.
int64_t fitting_slots(const ModelConfig& config, const CacheType& type,
                      const std::vector<LayerKvScales>& scales, int64_t tokens,
                      std::optional<uint64_t> cache_bytes);

/// Tokens that a slot must hold for any of the prompts.
int64_t longest_text(std::span<const BatchPrompt> prompts);

}  // namespace kvcal
