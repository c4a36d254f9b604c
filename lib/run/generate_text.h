#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/record_columns.h"
#include "eval/generate.h"
#include "run/loaded_model.h"

namespace kvcal {

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
  std::optional<int64_t> first_divergence;  ///< index of the first new token that differs
  std::vector<double> kl;                   ///< nats, one a token of the unquantized text
};
ComparedTexts compare_texts(const TextRequest& request, TextSink& sink, Diagnostics& diagnostics);

/// Output of `kvcal generate --json`.
Json generation_json(const TextRequest& request, const GeneratedText& text);
Json generation_json(const TextRequest& request, const ComparedTexts& texts);

}  // namespace kvcal
