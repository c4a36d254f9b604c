#include "run/generate_text.h"

#include "datasets/chat_template.h"

namespace kvcal {
namespace {

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
             model.config.vocab_size, " ids; is this the model's own tokenizer?");
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
  if (!request.system.empty() && !request.is_chat) fail("--system needs --chat");
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
      fail("--kv-cache-dtype ", request.cache.kv_cache_dtype,
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
                      .first_divergence = {},
                      .kl = comparison.kl};
  if (comparison.first_divergence >= 0) texts.first_divergence = comparison.first_divergence;
  return texts;
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
  json["first_divergence"] = texts.first_divergence ? Json(*texts.first_divergence) : Json(nullptr);
  json["kl"] = texts.kl;
  return json;
}

}  // namespace kvcal
