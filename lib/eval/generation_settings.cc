#include "eval/generation_settings.h"

#include <array>
#include <string_view>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/json_limits.h"
#include "datasets/chat_template.h"
#include "eval/generate.h"

namespace kvcal {
namespace {

/// A key of generation_config.json, and the number that changes nothing.
struct GenerationKey {
  std::string_view key;
  std::optional<int> neutral = {};
};

/// Settings that change every text. Source: transformers 5.17, generation/utils.py
/// `_get_logits_processor`, and the modes of `generate`.
constexpr std::array kGreedySettings{GenerationKey{"sequence_bias"},
                                     GenerationKey{"bad_words_ids"},
                                     GenerationKey{"min_length", 0},
                                     GenerationKey{"min_new_tokens", 0},
                                     GenerationKey{"no_repeat_ngram_size", 0},
                                     GenerationKey{"encoder_repetition_penalty", 1},
                                     GenerationKey{"encoder_no_repeat_ngram_size", 0},
                                     GenerationKey{"forced_bos_token_id"},
                                     GenerationKey{"forced_eos_token_id"},
                                     GenerationKey{"exponential_decay_length_penalty"},
                                     GenerationKey{"suppress_tokens"},
                                     GenerationKey{"begin_suppress_tokens"},
                                     GenerationKey{"guidance_scale", 1},
                                     GenerationKey{"num_beams", 1},
                                     GenerationKey{"stop_strings"}};

/// Settings that change sampled texts. Source: as of kGreedySettings.
constexpr std::array kSamplingSettings{GenerationKey{"min_p", 0}, GenerationKey{"typical_p", 1},
                                       GenerationKey{"epsilon_cutoff", 0},
                                       GenerationKey{"eta_cutoff", 0}, GenerationKey{"top_h"}};

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

}  // namespace kvcal
