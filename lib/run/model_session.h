#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/chat_template.h"
#include "eval/batch_generate.h"
#include "eval/continuation_scores.h"
#include "eval/generation_settings.h"
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

}  // namespace kvcal
