#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/number.h"
#include "forward/decoder.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

struct SamplingOptions {
  double temperature = 0.0;  ///< 0: greedy
  double top_p = 1.0;        ///< in (0, 1]
  int64_t top_k = 0;         ///< 0: all
  uint64_t seed = 0;
};

/// Picks the next token from logits. Temperature, then top-k, then top-p, as transformers' generate
/// does. The same seed gives the same tokens on every machine. Greedy takes the lowest id among
/// equals.
class Sampler {
 public:
  /// Throws Error for options out of range.
  explicit Sampler(const SamplingOptions& options);
  TokenId pick(std::span<const float> logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

/// Settings of a model folder for generation.
struct GenerationSettings {
  std::set<TokenId> stop_tokens;    ///< as stop_tokens_of
  float repetition_penalty = 1.0f;  ///< as in BatchOptions
  /// Of texts that are sampled, where the caller does not say them; absent: not in the file.
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  /// Keys of generation_config.json that change texts in transformers and are not followed: every
  /// text, and sampled ones alone.
  std::vector<std::string> not_followed, not_followed_sampling;
  std::optional<std::string> bos_token, eos_token;  ///< their texts
};

/// Reads config.json, generation_config.json and the tokenizer's special tokens. Throws Error with
/// the file's name.
GenerationSettings read_generation_settings(const std::filesystem::path& folder);

/// Ids of a text behind what add_bos_token asks for: bos_token, or nothing; absent: what the
/// tokenizer adds on its own. Throws Error where a bos_token is wanted and there is none.
/// Source: lm_eval 0.4.13, models/huggingface.py `tok_encode`, `tok_batch_encode`.
std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                std::string_view text, std::optional<bool> add_bos_token);

/// Strings that end a text, as lm-evaluation-harness's hf backend looks for them.
/// Source: lm_eval 0.4.13, models/utils_hf.py `MultiTokenEOSCriteria`, models/utils.py
/// `postprocess_generated_text`.
class StopStrings {
 public:
  /// tokenizer must outlive this; empty strings are left out.
  StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

  /// Whether one of them stands in the last tokens of ids: as many as it has itself, and two more.
  /// Special tokens count as their text.
  bool end(std::span<const TokenId> ids) const;
  /// text up to the first of them.
  std::string cut(std::string_view text) const;

 private:
  struct Stop {
    std::string text;
    size_t tokens = 0;  ///< that are looked at
  };
  const Tokenizer& tokenizer_;
  std::vector<Stop> stops_;
};

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  SamplingOptions sampling;
  std::set<TokenId> stop_tokens;  ///< end of sequence; the one that ends the text is not part of it
};

struct Generation {
  std::vector<TokenId> ids;   ///< new tokens, without the stop token
  std::string finish_reason;  ///< "stop" or "length"
  double prefill_seconds = 0.0, decode_seconds = 0.0;
  int64_t num_steps = 0;  ///< decode steps, the stop token's included
};

/// Called with every new token as it comes; returns nothing.
using TokenSink = std::function<void(TokenId)>;
/// Called with the logits every new token is picked from.
using LogitsSink = std::function<void(std::span<const float>)>;

/// Continues prompt. The cache must be empty and hold prompt + max_new_tokens.
Generation generate(Decoder& decoder, KvCache& cache, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const TokenSink& on_token = {},
                    const LogitsSink& on_logits = {});

/// Two caches on one prompt: each one's own text, and the KL of the second's next-token
/// distribution from the first's at every token of the first's text (both fed the first's tokens).
struct Comparison {
  Generation first, second;
  int64_t first_divergence =
      -1;                  ///< index of the first new token that differs; -1: the texts are equal
  std::vector<double> kl;  ///< nats, one a token of the first's text
};
Comparison compare_caches(Decoder& decoder, KvCache& first, KvCache& second,
                          std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TokenSink& on_first = {}, const TokenSink& on_second = {});

/// eos_token_id of generation_config.json (a number or a list), else of config.json, in either
/// spelling.
std::set<TokenId> stop_tokens_of(const Json& generation_config, const Json& config);

/// Turns tokens into text piece by piece: a piece comes out only when its UTF-8 is complete.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that id completes; may be empty.
  std::string push(TokenId id);
  /// The text that is still held back.
  std::string finish();

 private:
  /// Text of ids [begin_, end).
  std::string decoded(size_t end) const {
    return tokenizer_.decode(std::span(ids_).subspan(begin_, end - begin_), true);
  }

  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
  size_t begin_ = 0;        ///< first id that the next decode needs as context
  size_t printed_ids_ = 0;  ///< ids whose text is out
};

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

/// The tokens and steps that generating took. prompt_tokens: those that were run; what a prompt has
/// in common with one that a slot holds is copied.
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
