#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/chat_template.h"
#include "datasets/record_columns.h"
#include "eval/continuation_scores.h"
#include "eval/generate.h"
#include "run/loaded_model.h"

namespace kvcal {

/// A model and the cache that it runs with.
struct SessionOptions {
  std::string model;
  FamilyChoice family = {};  ///< of a model_type that is not known
  CacheOptions cache = {};
  DeviceOptions device = {};
};

/// How texts are continued.
struct ContinueOptions {
  std::vector<std::string> stops = {};  ///< as StopStrings; the model's stop tokens end a text, too
  std::optional<float> repetition_penalty = {};  ///< absent: generation_config.json's
  SamplingOptions sampling = {};                 ///< as BatchOptions
  int64_t batch_size = 0;                        ///< as in ModelSession::score
};

/// A model that stays loaded between calls, for programs that ask it many things. Texts and scores
/// do not depend on what else was asked, nor on batch_size.
class ModelSession {
 public:
  /// Throws Error as LoadedModel, cache_type_of and scales_of do, and for a folder without a
  /// tokenizer.
  ModelSession(const SessionOptions& options, Diagnostics& diagnostics);

  const LoadedModel& model() const { return model_; }
  const GenerationSettings& settings() const { return settings_; }
  /// null where the folder has no chat template.
  const ChatFormat* chat() const { return chat_ ? &*chat_ : nullptr; }
  CacheType cache_type() const { return cache_type_; }

  /// As prompt_ids.
  std::vector<TokenId> encode(std::string_view text, std::optional<bool> add_bos_token) const;
  /// batch_size: how many texts are run at a time; 0: as many as half of the free memory holds the
  /// caches of, 32 at most. Throws Error as ContinuationScorer.
  std::vector<ContinuationScore> score(std::span<const ContinuationIds> texts, int64_t batch_size);
  /// Texts of the model, without special tokens, up to the first stop. Throws Error as
  /// generate_together.
  std::vector<std::string> continue_texts(std::span<const BatchPrompt> prompts,
                                          const ContinueOptions& options, Diagnostics& diagnostics);

 private:
  int64_t slots_for(int64_t batch_size, int64_t tokens) const;

  LoadedModel model_;
  CacheType cache_type_;
  std::vector<LayerKvScales> scales_;
  GenerationSettings settings_;
  std::optional<ChatFormat> chat_;
  ContinuationScorer scorer_;
};

/// max_length in tokens, vocab_size, compute_dtype, kv_cache_dtype, and bos_token, bos_token_id,
/// eos_token, eos_token_id, chat_template, top_p and top_k, which are null where the folder has
/// none.
Json to_json(const ModelSession& session);

/// A prompt, and the model and cache that continue it.
struct TextRequest {
  std::string model, prompt;
  FamilyChoice family = {};  ///< of a model_type that is not known
  std::string system = {};   ///< a system message; needs is_chat
  bool is_chat = false;      ///< puts the prompt into the model's chat template
  ChatOptions chat = {};     ///< of that
  bool ignores_eos = false;
  CacheOptions cache = {};
  GenerateOptions generate = {};  ///< stop_tokens are the model's
  DeviceOptions device = {};
};

/// Receives texts while they are generated, one after the other.
class TextSink {
 public:
  virtual ~TextSink() = default;
  virtual void begin(const CacheType& cache) = 0;
  virtual void add(const std::string& piece) = 0;
  virtual void end() = 0;
};

struct GeneratedText {
  CacheType cache;
  std::vector<TokenId> prompt_ids;
  Generation generation;
  std::string text;
};

/// Continues the prompt. Throws Error for a contradictory request, or as LoadedModel does.
GeneratedText generate_text(const TextRequest& request, TextSink& sink, Diagnostics& diagnostics);

/// Continues the prompt with the unquantized cache and with the requested one; where "auto" means
/// the unquantized one, the other is FP8 E4M3.
struct ComparedTexts {
  GeneratedText unquantized, other;
  std::optional<int64_t> first_divergence = {};  ///< index of the first new token that differs
  std::vector<double> kl = {};                   ///< nats, one a token of the unquantized text
  std::vector<std::string> pieces = {};          ///< the unquantized text's tokens, one a KL
  std::string other_piece = {};                  ///< the other text's where they part
};
ComparedTexts compare_texts(const TextRequest& request, TextSink& sink, Diagnostics& diagnostics);

/// Where the texts part, and the tokens whose probabilities the cache changes most: lines for a
/// terminal.
std::string comparison_text(const ComparedTexts& texts);

/// Output of `kvcal generate --json`.
Json generation_json(const TextRequest& request, const GeneratedText& text);
Json generation_json(const TextRequest& request, const ComparedTexts& texts);

}  // namespace kvcal
