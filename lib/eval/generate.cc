#include "eval/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/stopwatch.h"
#include "datasets/chat_template.h"
#include "eval/logit_rows.h"
#include "eval/shared_prefixes.h"

namespace kvcal {

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature))
    fail("temperature is ", options.temperature, ", expected 0 or more");
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    fail("top-p is ", options.top_p, ", expected more than 0 and at most 1");
  if (options.top_k < 0) fail("top-k is ", options.top_k, ", expected 0 or more");
}

TokenId Sampler::pick(std::span<const float> logits) {
  if (options_.temperature == 0.0) return argmax(logits);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  // Ties in id order, so that no sort's whims show.
  std::ranges::stable_sort(order, [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < order.size())
    order.resize(static_cast<size_t>(options_.top_k));
  const auto largest = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  std::vector<double> weights;
  for (const TokenId id : order)
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - largest) /
                               options_.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  // The token that reaches top_p is still in.
  double kept = 0.0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options_.top_p * total))
    kept += weights[count++];
  // 53 random bits: std::uniform_real_distribution differs between libraries.
  const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
  double remaining = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    remaining -= weights[i];
    if (remaining < 0.0) return order[i];
  }
  return order[count - 1];
}

namespace {

/// A key of generation_config.json, and the number that changes nothing.
struct GenerationKey {
  std::string_view key;
  std::optional<int> neutral = {};
};

/// Settings that change every text. Source: transformers 5.17, generation/utils.py
/// `_get_logits_processor`, and the modes of `generate`.
constexpr GenerationKey kGreedySettings[] = {{"sequence_bias"},
                                             {"bad_words_ids"},
                                             {"min_length", 0},
                                             {"min_new_tokens", 0},
                                             {"no_repeat_ngram_size", 0},
                                             {"encoder_repetition_penalty", 1},
                                             {"encoder_no_repeat_ngram_size", 0},
                                             {"forced_bos_token_id"},
                                             {"forced_eos_token_id"},
                                             {"exponential_decay_length_penalty"},
                                             {"suppress_tokens"},
                                             {"begin_suppress_tokens"},
                                             {"guidance_scale", 1},
                                             {"num_beams", 1},
                                             {"stop_strings"}};

/// Settings that change sampled texts. Source: as of kGreedySettings.
constexpr GenerationKey kSamplingSettings[] = {
    {"min_p", 0}, {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"top_h"}};

bool asks_for_something(const GenerationKey& setting, const Json& generation) {
  const Json* value = find_field(generation, setting.key);
  if (!value || (value->is_array() && value->empty())) return false;
  return !(setting.neutral && value->is_number() && *value == *setting.neutral);
}

Json read_object(const fs::path& path) {
  return in_context(path.string(), [&] {
    Json json = parse_model_json(read_text(path, kSmallFileLimits.max_bytes));
    if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
    return json;
  });
}

}  // namespace

GenerationSettings read_generation_settings(const fs::path& folder) {
  GenerationSettings settings;
  const Json config = read_object(folder / "config.json");
  const fs::path file = folder / "generation_config.json";
  const Json generation = is_there(file) ? read_object(file) : Json::object();
  in_context(file.string(), [&] {
    const Json* text = find_field(config, "text_config");
    settings.stop_tokens = stop_tokens_of(generation, config);
    if (settings.stop_tokens.empty() && text)
      settings.stop_tokens = stop_tokens_of(generation, *text);
    const double penalty = optional_number(generation, "repetition_penalty").value_or(1.0);
    if (penalty <= 0.0) fail("key 'repetition_penalty' is ", penalty, ", expected more than 0");
    settings.repetition_penalty = static_cast<float>(penalty);
    settings.top_p = optional_number(generation, "top_p");
    settings.top_k = optional_int(generation, "top_k");
  });
  for (const GenerationKey& setting : kGreedySettings)
    if (asks_for_something(setting, generation)) settings.not_followed.emplace_back(setting.key);
  for (const GenerationKey& setting : kSamplingSettings)
    if (asks_for_something(setting, generation))
      settings.not_followed_sampling.emplace_back(setting.key);
  const Json tokens = special_token_texts(folder);
  settings.bos_token = optional_string(tokens, "bos_token");
  settings.eos_token = optional_string(tokens, "eos_token");
  return settings;
}

std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                std::string_view text, std::optional<bool> add_bos_token) {
  if (!add_bos_token) return tokenizer.encode(text, true);
  std::vector<TokenId> ids = tokenizer.encode(text, false);
  if (!*add_bos_token) return ids;
  const auto bos = settings.bos_token ? tokenizer.token_to_id(*settings.bos_token) : std::nullopt;
  if (!bos) fail("a token at the beginning is wanted, the tokenizer has no bos_token");
  ids.insert(ids.begin(), *bos);
  return ids;
}

StopStrings::StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings)
    : tokenizer_(tokenizer) {
  for (const std::string& text : strings)
    if (!text.empty()) stops_.push_back({text, tokenizer.encode(text, false).size() + 2});
}

bool StopStrings::end(std::span<const TokenId> ids) const {
  return std::ranges::any_of(stops_, [&](const Stop& stop) {
    const auto last = ids.last(std::min(stop.tokens, ids.size()));
    return tokenizer_.decode(last, false).find(stop.text) != std::string::npos;
  });
}

std::string StopStrings::cut(std::string_view text) const {
  for (const Stop& stop : stops_) text = text.substr(0, text.find(stop.text));
  return std::string(text);
}

namespace {

void check_prompt(std::span<const TokenId> prompt) {
  if (prompt.empty()) fail("the prompt has no token");
}

}  // namespace

Generation generate(Decoder& decoder, KvCache& cache, std::span<const TokenId> prompt,
                    const GenerateOptions& options, const TokenSink& on_token,
                    const LogitsSink& on_logits) {
  check_prompt(prompt);
  Sampler sampler(options.sampling);
  Generation result{.ids = {}, .finish_reason = "length"};
  std::vector<float> logits;
  {
    const TimedScope watch(result.prefill_seconds);
    logits = decoder.step(prompt, cache);
  }
  {
    const TimedScope watch(result.decode_seconds);
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
  }
  return result;
}

Comparison compare_caches(Decoder& decoder, KvCache& first, KvCache& second,
                          std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TokenSink& on_first, const TokenSink& on_second) {
  check_prompt(prompt);
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

std::string TextStream::push(TokenId id) {
  ids_.push_back(id);
  const std::string before = decoded(printed_ids_), now = decoded(ids_.size());
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
  const std::string before = decoded(printed_ids_), now = decoded(ids_.size());
  printed_ids_ = ids_.size();
  return now.size() > before.size() ? now.substr(before.size()) : "";
}

namespace {

/// The text that a slot is writing.
struct Writing {
  size_t prompt = 0;
  Sampler sampler;
  std::vector<TokenId> ids = {};
  std::set<TokenId> seen = {};  ///< of prompt and text, where repetition is penalized
};

class BatchWriter {
 public:
  BatchWriter(Decoder& decoder, KvCache& cache, std::span<const BatchPrompt> prompts,
              const BatchOptions& options)
      : decoder_(decoder),
        cache_(cache),
        prompts_(prompts),
        options_(options),
        writing_(static_cast<size_t>(cache.slots())),
        held_(writing_.size()),
        may_share_(can_share(decoder.config(), cache.capacity())) {}

  BatchUse run() {
    for (;;) {
      for (size_t slot = 0; slot < writing_.size(); ++slot)
        while (!writing_[slot] && next_ < prompts_.size()) begin(slot, next_++);
      if (std::ranges::none_of(writing_, [](const auto& one) { return one.has_value(); }))
        return use_;
      step();
    }
  }

 private:
  /// Alone, so that its bytes do not depend on which prompts stand beside it in the queue.
  void begin(size_t slot, size_t prompt) {
    throw_if_interrupted();
    const std::vector<TokenId>& ids = prompts_[prompt].ids;
    if (ids.empty()) fail("prompt ", prompt, " has no token");
    Writing text{.prompt = prompt, .sampler = sampler_of(prompt)};
    if (prompts_[prompt].max_new_tokens <= 0) return finish(slot, std::move(text));
    const size_t shared = take_shared(slot, ids);
    const Decoder::SequenceTokens sequence{.slot = static_cast<int64_t>(slot),
                                           .ids = std::span(ids).subspan(shared)};
    held_[slot] = prompt;
    std::vector<float> logits;
    {
      const TimedScope watch(use_.prefill_seconds);
      logits = logits_after(std::span(&sequence, 1), [&](size_t) { return prompt; });
    }
    use_.prompt_tokens += std::ssize(sequence.ids);
    writing_[slot] = std::move(text);
    if (options_.repetition_penalty != 1.0f) writing_[slot]->seen = {ids.begin(), ids.end()};
    append(slot, logits);
  }

  /// States are those behind a whole sequence; attention that selects keys reads a short part
  /// whole, in another order than selected keys.
  static bool can_share(const ModelConfig& config, int64_t capacity) {
    bool has_states = false;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      has_states = has_states || config.has_states(layer);
    return !has_states && !config.selects_keys(capacity);
  }

  /// Tokens at the beginning of both prompts whose K and V are those of either, but for the last
  /// two of ids: one alone would be a step of decoding, whose last bits may be others.
  size_t shared_tokens(const std::vector<TokenId>& of, const std::vector<TokenId>& ids) const {
    for (const RopeConfig& rope : decoder_.config().ropes)
      if (rope_block(rope, std::ssize(of)) != rope_block(rope, std::ssize(ids))) return 0;
    const auto common = std::ranges::mismatch(of, ids).in1 - of.begin();
    return std::min(static_cast<size_t>(common), ids.size() - std::min<size_t>(ids.size(), 2));
  }

  /// Fills the slot with what the prompts in the slots have in common with ids, where that is worth
  /// a copy, and returns the number of tokens.
  size_t take_shared(size_t slot, const std::vector<TokenId>& ids) {
    size_t best = slot, most = 0;
    for (size_t other = 0; may_share_ && other < held_.size(); ++other) {
      if (!held_[other]) continue;
      const size_t shared = shared_tokens(prompts_[*held_[other]].ids, ids);
      if (shared < most || (shared == most && other != slot)) continue;
      best = other;
      most = shared;
    }
    if (most < kLeastShared) {
      cache_.clear(static_cast<int64_t>(slot));
      return 0;
    }
    cache_.copy(static_cast<int64_t>(best), static_cast<int64_t>(slot), static_cast<int64_t>(most));
    return most;
  }

  /// Names the prompt whose logits are not finite.
  template <class PromptOf>
  std::vector<float> logits_after(std::span<const Decoder::SequenceTokens> sequences,
                                  const PromptOf& prompt_of) {
    try {
      return decoder_.step_together(sequences, cache_);
    } catch (NotFiniteLogits& error) {
      error.add_context("prompt " + std::to_string(prompt_of(static_cast<size_t>(error.row()))));
      throw;
    }
  }

  Sampler sampler_of(size_t prompt) const {
    SamplingOptions sampling = options_.sampling;
    sampling.seed += prompt;
    return Sampler(sampling);
  }

  /// One more token of all texts.
  void step() {
    throw_if_interrupted();
    std::vector<Decoder::SequenceTokens> sequences;
    for (size_t slot = 0; slot < writing_.size(); ++slot)
      if (const auto& one = writing_[slot])
        sequences.push_back(
            {.slot = static_cast<int64_t>(slot), .ids = std::span(one->ids).last(1)});
    std::vector<float> logits;
    {
      const TimedScope watch(use_.decode_seconds);
      logits = logits_after(sequences, [&](size_t i) {
        return writing_[static_cast<size_t>(sequences[i].slot)]->prompt;
      });
    }
    ++use_.num_steps;
    const size_t vocab = logits.size() / sequences.size();
    for (size_t i = 0; i < sequences.size(); ++i)
      append(static_cast<size_t>(sequences[i].slot), std::span(logits).subspan(i * vocab, vocab));
  }

  void append(size_t slot, std::span<float> logits) {
    Writing& writing = *writing_[slot];
    for (const TokenId id : writing.seen) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit < 0 ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
    }
    const TokenId id = writing.sampler.pick(logits);
    writing.ids.push_back(id);
    ++use_.new_tokens;
    if (options_.repetition_penalty != 1.0f) writing.seen.insert(id);
    const bool is_full = std::ssize(writing.ids) == prompts_[writing.prompt].max_new_tokens;
    if (is_full || (options_.is_end && options_.is_end(writing.ids)))
      finish(slot, std::move(writing));
  }

  void finish(size_t slot, Writing text) {
    writing_[slot].reset();
    if (options_.on_text) options_.on_text(text.prompt, std::move(text.ids));
  }

  Decoder& decoder_;
  KvCache& cache_;
  std::span<const BatchPrompt> prompts_;
  const BatchOptions& options_;
  std::vector<std::optional<Writing>> writing_;  ///< by slot
  std::vector<std::optional<size_t>> held_;      ///< the prompt that a slot's sequence begins with
  bool may_share_ = false;
  size_t next_ = 0;  ///< prompt
  BatchUse use_;
};

}  // namespace

BatchUse generate_together(Decoder& decoder, KvCache& cache, std::span<const BatchPrompt> prompts,
                           const BatchOptions& options) {
  return BatchWriter(decoder, cache, prompts, options).run();
}

int64_t fitting_slots(const ModelConfig& config, const CacheType& type,
                      const std::vector<LayerKvScales>& scales, int64_t tokens,
                      std::optional<uint64_t> cache_bytes) {
  if (!cache_bytes) return kTextsTogether;
  const uint64_t each = KvCache::bytes_per_slot(config, type, scales, tokens);
  return static_cast<int64_t>(
      std::clamp<uint64_t>(*cache_bytes / std::max<uint64_t>(each, 1), 1, kTextsTogether));
}

int64_t longest_text(std::span<const BatchPrompt> prompts) {
  int64_t longest = 0;
  for (const BatchPrompt& prompt : prompts)
    // The last new token is never fed.
    longest = std::max(longest, std::ssize(prompt.ids) + prompt.max_new_tokens - 1);
  return longest;
}

}  // namespace kvcal
