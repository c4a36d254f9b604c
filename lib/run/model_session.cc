#include "run/model_session.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/text.h"
#include "core/usage_error.h"

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

std::vector<TokenId> prompt_ids(const TextRequest& request, const LoadedModel& model) {
  if (!request.is_chat) return model.tokenizer->encode(request.prompt, true);
  const auto chat = ChatFormat::from_folder(model.model_dir.path(), request.chat);
  if (!chat) fail(request.model, ": has no chat template; leave --chat out");
  Json messages = Json::array();
  if (!request.system.empty())
    messages.push_back({{"role", "system"}, {"content", request.system}});
  messages.push_back({{"role", "user"}, {"content", request.prompt}});
  return model.tokenizer->encode(chat->render(messages, true), false);
}

/// A request with its loaded model and encoded prompt.
struct Prepared {
  Prepared(const TextRequest& request, Diagnostics& diagnostics)
      : model(request.model, request.device, true, diagnostics, nullptr, request.family),
        options(request.generate) {
    if (!request.ignores_eos)
      options.stop_tokens =
          stop_tokens_of(model.model_dir.generation_config(), model.model_dir.config());
    prompt = prompt_ids(request, model);
    for (const TokenId id : prompt)
      if (id >= model.config.vocab_size)
        fail(request.model, ": the tokenizer gives id ", id, ", the model's vocabulary has ",
             counted(model.config.vocab_size, "id"), "; is this the model's own tokenizer?");
    type = cache_type_of(request.cache, model, diagnostics);
  }

  KvCache make_cache(const CacheType& cache, const std::vector<LayerKvScales>& scales) {
    return model.decoder.make_cache(cache, scales, std::ssize(prompt) + options.max_new_tokens);
  }
  GeneratedText text_of(const CacheType& cache, const Generation& generation) const {
    return {cache, prompt, generation, model.tokenizer->decode(generation.ids, true)};
  }

  LoadedModel model;
  GenerateOptions options;
  std::vector<TokenId> prompt;
  CacheType type = KvDType::kFloat32;
};

void check_request(const TextRequest& request) {
  if (!request.system.empty() && !request.is_chat) fail_usage("--system needs --chat");
  check(request.cache);
  Sampler check_options(request.generate.sampling);
}

/// Converts the tokens of one text to text for a sink.
class LiveText {
 public:
  LiveText(TextSink& sink, const Tokenizer& tokenizer) : sink_(sink), stream_(tokenizer) {}
  void push(TokenId id) { sink_.add(stream_.push(id)); }
  void finish() {
    sink_.add(stream_.finish());
    sink_.end();
  }

 private:
  TextSink& sink_;
  TextStream stream_;
};

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
    json[name] = or_null(token);
    json[name + "_id"] = or_null(id);
  };
  add("bos_token", session.settings().bos_token);
  add("eos_token", session.settings().eos_token);
  json["top_p"] = or_null(session.settings().top_p);
  json["top_k"] = or_null(session.settings().top_k);
  json["chat_template"] = session.chat() ? Json(session.chat()->source()) : Json(nullptr);
  return json;
}

GeneratedText generate_text(const TextRequest& request, TextSink& sink, Diagnostics& diagnostics) {
  check_request(request);
  Prepared run(request, diagnostics);
  KvCache cache =
      run.make_cache(run.type, scales_of(request.cache, run.model, run.type, diagnostics));
  LiveText live(sink, *run.model.tokenizer);
  sink.begin(run.type);
  const Generation generation = generate(run.model.decoder, cache, run.prompt, run.options,
                                         [&](TokenId id) { live.push(id); });
  live.finish();
  tell_warnings(run.model.backend, diagnostics);
  return run.text_of(run.type, generation);
}

ComparedTexts compare_texts(const TextRequest& request, TextSink& sink, Diagnostics& diagnostics) {
  check_request(request);
  Prepared run(request, diagnostics);
  const KvDType plain = unquantized_cache_dtype(run.model.config);
  if (run.type == plain) {
    if (request.cache.kv_cache_dtype != "auto")
      fail_usage("--kv-cache-dtype ", request.cache.kv_cache_dtype,
                 " is what --compare compares with; name another dtype");
    run.type = KvDType::kFp8E4m3;
  }
  KvCache first = run.make_cache(plain, {});
  KvCache second =
      run.make_cache(run.type, scales_of(request.cache, run.model, run.type, diagnostics));
  LiveText first_text(sink, *run.model.tokenizer), second_text(sink, *run.model.tokenizer);
  bool is_second = false;
  const auto start_second = [&] {
    if (is_second) return;
    is_second = true;
    first_text.finish();
    sink.begin(run.type);
  };
  sink.begin(plain);
  const Comparison comparison = compare_caches(
      run.model.decoder, first, second, run.prompt, run.options,
      [&](TokenId id) { first_text.push(id); },
      [&](TokenId id) {
        start_second();
        second_text.push(id);
      });
  start_second();
  second_text.finish();
  tell_warnings(run.model.backend, diagnostics);
  ComparedTexts texts{.unquantized = run.text_of(plain, comparison.first),
                      .other = run.text_of(run.type, comparison.second),
                      .kl = comparison.kl};
  if (comparison.first_divergence >= 0) texts.first_divergence = comparison.first_divergence;
  const auto piece_of = [&](std::span<const TokenId> ids, size_t at) {
    return at < ids.size() ? run.model.tokenizer->decode(ids.subspan(at, 1), false)
                           : std::string("(the end)");
  };
  for (size_t at = 0; at < texts.kl.size(); ++at)
    texts.pieces.push_back(piece_of(comparison.first.ids, at));
  if (const auto& at = texts.first_divergence)
    texts.other_piece = piece_of(comparison.second.ids, static_cast<size_t>(*at));
  return texts;
}

namespace {

/// "token 3 (' moon', KL 0.012)".
std::string token_text(const ComparedTexts& texts, size_t at) {
  return "token " + std::to_string(at) + " (" + shown_name(texts.pieces[at]) + ", KL " +
         fixed("%.4f", texts.kl[at]) + ")";
}

}  // namespace

std::string comparison_text(const ComparedTexts& texts) {
  constexpr size_t kShown = 3;
  std::string text = "the texts are equal\n";
  if (const auto& first = texts.first_divergence) {
    const auto at = static_cast<size_t>(*first);
    text = "the texts part at token " + std::to_string(at);
    if (at < texts.kl.size())
      text += ": " + shown_name(texts.pieces[at]) + " in 16 bits, " +
              shown_name(texts.other_piece) + " with this cache, KL " +
              fixed("%.4f", texts.kl[at]) + " nats";
    text += '\n';
  }
  if (texts.kl.empty()) return text;
  std::vector<size_t> order(texts.kl.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t at) { return texts.kl[at]; });
  if (order.size() > kShown) order.resize(kShown);
  const double sum = std::accumulate(texts.kl.begin(), texts.kl.end(), 0.0);
  return text + "KL a token: mean " + fixed("%.4f", sum / static_cast<double>(texts.kl.size())) +
         " nats; largest at " +
         join(order, ", ", [&](size_t at) { return token_text(texts, at); }) + '\n';
}

Json generation_json(const TextRequest& request, const GeneratedText& text) {
  const Generation& generation = text.generation;
  const double rate = generation.decode_seconds > 0
                          ? static_cast<double>(generation.num_steps) / generation.decode_seconds
                          : 0.0;
  return {{"prompt", request.prompt},
          {"prompt_ids", text.prompt_ids},
          {"ids", generation.ids},
          {"text", text.text},
          {"finish_reason", generation.finish_reason},
          {"tokens_per_second", rate}};
}

Json generation_json(const TextRequest& request, const ComparedTexts& texts) {
  Json json = {{name_of(texts.unquantized.cache), generation_json(request, texts.unquantized)},
               {name_of(texts.other.cache), generation_json(request, texts.other)}};
  json["first_divergence"] = or_null(texts.first_divergence);
  json["kl"] = texts.kl;
  json["tokens"] = texts.pieces;
  return json;
}

}  // namespace kvcal
