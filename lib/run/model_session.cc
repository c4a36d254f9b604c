#include "run/model_session.h"

#include "eval/stop_strings.h"

namespace kvcal {
namespace {

/// check before anything is loaded.
const SessionOptions& checked(const SessionOptions& options) {
  check(options.cache);
  return options;
}

void warn_not_followed(const std::vector<std::string>& keys, Diagnostics& diagnostics) {
  for (const std::string& key : keys)
    diagnostics.warn("generation_config.json: '" + key +
                     "' is not followed, so texts may differ from transformers'");
}

}  // namespace

ModelSession::ModelSession(const SessionOptions& options, Diagnostics& diagnostics)
    : model_(checked(options).model, options.device, true, diagnostics, nullptr, options.family),
      cache_type_(cache_type_of(options.cache, model_, diagnostics)),
      scales_(scales_of(options.cache, model_, cache_type_, diagnostics)),
      settings_(read_generation_settings(model_.model_dir.path())),
      chat_(ChatFormat::from_folder(model_.model_dir.path())),
      scorer_({model_.decoder, cache_type_, scales_}, options.device.threads) {
  warn_not_followed(settings_.not_followed, diagnostics);
}

std::vector<TokenId> ModelSession::encode(std::string_view text,
                                          std::optional<bool> add_bos_token) const {
  return prompt_ids(*model_.tokenizer, settings_, text, add_bos_token);
}

int64_t ModelSession::slots_for(int64_t batch_size, int64_t tokens) const {
  if (batch_size > 0) return batch_size;
  return fitting_slots(model_.config, cache_type_, scales_, tokens, cache_memory(model_.backend));
}

std::vector<ContinuationScore> ModelSession::score(std::span<const ContinuationIds> texts,
                                                   int64_t batch_size) {
  if (texts.empty()) return {};
  return scorer_.score(texts, slots_for(batch_size, ContinuationScorer::longest_text(texts)));
}

std::vector<std::string> ModelSession::continue_texts(std::span<const BatchPrompt> prompts,
                                                      const ContinueOptions& options,
                                                      Diagnostics& diagnostics) {
  if (prompts.empty()) return {};
  if (options.sampling.temperature > 0.0)
    warn_not_followed(settings_.not_followed_sampling, diagnostics);
  const Tokenizer& tokenizer = *model_.tokenizer;
  const StopStrings stops(tokenizer, options.stops);
  const int64_t longest = longest_text(prompts), total = std::ssize(prompts);
  KvCache cache = model_.decoder.make_cache(
      cache_type_, scales_, longest,
      std::clamp<int64_t>(total, 1, slots_for(options.batch_size, longest)));
  std::vector<std::string> texts(prompts.size());
  int64_t done = 0;
  generate_together(
      model_.decoder, cache, prompts,
      {.repetition_penalty = options.repetition_penalty.value_or(settings_.repetition_penalty),
       .sampling = options.sampling,
       .is_end =
           [&](std::span<const TokenId> ids) {
             return settings_.stop_tokens.contains(ids.back()) || stops.end(ids);
           },
       .on_text =
           [&](size_t prompt, const std::vector<TokenId>& ids) {
             texts[prompt] = stops.cut(tokenizer.decode(ids, true));
             diagnostics.progress("generate", ++done, total, "texts");
           }});
  tell_warnings(model_.backend, diagnostics);
  return texts;
}

Json to_json(const ModelSession& session) {
  const LoadedModel& model = session.model();
  Json json{{"max_length", model.config.max_position_embeddings},
            {"vocab_size", model.config.vocab_size},
            {"compute_dtype", name_of(model.decoder.compute_type())},
            {"kv_cache_dtype", name_of(session.cache_type())}};
  const auto add = [&](const std::string& name, const std::optional<std::string>& token) {
    const auto id = token ? model.tokenizer->token_to_id(*token) : std::nullopt;
    json[name] = token ? Json(*token) : Json(nullptr);
    json[name + "_id"] = id ? Json(*id) : Json(nullptr);
  };
  add("bos_token", session.settings().bos_token);
  add("eos_token", session.settings().eos_token);
  const GenerationSettings& settings = session.settings();
  json["top_p"] = settings.top_p ? Json(*settings.top_p) : Json(nullptr);
  json["top_k"] = settings.top_k ? Json(*settings.top_k) : Json(nullptr);
  json["chat_template"] = session.chat() ? Json(session.chat()->source()) : Json(nullptr);
  return json;
}

}  // namespace kvcal
