#include "eval/generate.h"

#include <algorithm>
#include <chrono>

#include "core/interrupt.h"
#include "eval/logit_rows.h"

namespace kvcal {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Generation generate(Decoder& decoder, KvCache& cache, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const TokenSink& on_token,
                    const LogitsSink& on_logits) {
  if (prompt.empty()) fail("the prompt has no token");
  Sampler sampler(options.sampling);
  Generation result;
  const auto start = Clock::now();
  std::vector<float> logits = decoder.step(prompt, cache);
  result.prefill_seconds = seconds_since(start);
  result.finish_reason = "length";
  const auto decode_start = Clock::now();
  while (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens) {
    throw_if_interrupted();
    const TokenId id = sampler.pick(logits);
    ++result.num_steps;
    if (options.stop_tokens.contains(id)) {
      result.finish_reason = "stop";
      break;
    }
    if (on_logits) on_logits(logits);
    result.ids.push_back(id);
    if (on_token) on_token(id);
    if (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens)
      logits = decoder.step(std::span(&id, 1), cache);
  }
  result.decode_seconds = seconds_since(decode_start);
  return result;
}

Comparison compare_caches(Decoder& decoder, KvCache& first, KvCache& second,
                          std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TokenSink& on_first, const TokenSink& on_second) {
  Comparison result;
  // The second cache follows the first's tokens step by step; then it is emptied and writes its own
  // text.
  std::vector<float> followed = decoder.step(prompt, second);
  const auto follow = [&](TokenId id) {
    if (on_first) on_first(id);
    if (second.length() < second.capacity()) followed = decoder.step(std::span(&id, 1), second);
  };
  const auto measure = [&](std::span<const float> logits) {
    result.kl.push_back(kl_divergence(logits, followed));
  };
  result.first = generate(decoder, first, prompt, options, follow, measure);
  second.clear();
  result.second = generate(decoder, second, prompt, options, on_second);
  const auto [a, b] = std::ranges::mismatch(result.first.ids, result.second.ids);
  if (a != result.first.ids.end() || b != result.second.ids.end())
    result.first_divergence = a - result.first.ids.begin();
  return result;
}

std::set<TokenId> stop_tokens_of(const Json& generation_config, const Json& config) {
  constexpr std::string_view kKey = "eos_token_id";
  std::set<TokenId> stops;
  const auto add = [&](const Json& value) {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > INT32_MAX)
      fail_kind(kKey, "a token id or a list of them", value);
    stops.insert(value.get<TokenId>());
  };
  const Json* field = find_field(generation_config, kKey);
  if (!field) field = find_field(config, kKey);
  if (!field) return stops;
  if (field->is_array()) {
    for (const Json& value : *field) add(value);
  } else {
    add(*field);
  }
  return stops;
}

std::string TextStream::decoded(size_t begin) const {
  return tokenizer_.decode(std::span(ids_).subspan(begin), true);
}

std::string TextStream::push(TokenId id) {
  ids_.push_back(id);
  const std::string before =
      tokenizer_.decode(std::span(ids_).subspan(begin_, printed_ids_ - begin_), true);
  const std::string now = decoded(begin_);
  // A replacement character at the end is most likely half of a character whose other half comes
  // next.
  if (now.size() <= before.size() || now.ends_with("\xef\xbf\xbd")) return "";
  // The last printed token stays as context: some decoders treat the first token of a text in its
  // own way.
  begin_ = printed_ids_;
  printed_ids_ = ids_.size();
  return now.substr(before.size());
}

std::string TextStream::finish() {
  const std::string before =
      tokenizer_.decode(std::span(ids_).subspan(begin_, printed_ids_ - begin_), true);
  const std::string now = decoded(begin_);
  printed_ids_ = ids_.size();
  return now.size() > before.size() ? now.substr(before.size()) : "";
}

}  // namespace kvcal
