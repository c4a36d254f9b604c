#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "eval/sampler.h"
#include "forward/decoder.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

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
  std::string decoded(size_t begin) const;

  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
  size_t begin_ = 0;        ///< first id that the next decode needs as context
  size_t printed_ids_ = 0;  ///< ids whose text is out
};

}  // namespace kvcal
