#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/registry.h"

namespace kvcal {

// What engines were seen to do with the models that they were run on: answers/ENGINE_VERSION.json,
// which reference/engines_answers.py writes.

/// What becomes of the KV scales of a checkpoint.
enum class MissEffect : uint8_t {
  kOnes,                  ///< the scales are 1.0
  kOnesWhenAsked,         ///< the cache keeps 16 bits unless FP8 is asked for, then with 1.0
  kRefusedWhenAsked,      ///< the cache keeps 16 bits; where FP8 is asked for it does not start
  kSixteenBits,           ///< the cache keeps 16 bits, whatever is asked for
  kByRulesWhenAsked,      ///< the cache keeps 16 bits unless FP8 is asked for, then MethodRules
  kRefused,               ///< it does not start
  kNoModel,               ///< it does not start, with or without scales
  kRefusedWithoutGroups,  ///< it does not start where config_groups are empty
  kByRules,               ///< MethodRules decide
};
/// Whether MethodRules decide a miss.
constexpr bool goes_by_rules(MissEffect effect) {
  return effect == MissEffect::kByRules || effect == MissEffect::kByRulesWhenAsked;
}

/// A key of config.json, or of its text_config, and its value.
struct Setting {
  std::string key;            ///< "a.b": key b of the object a
  std::optional<Json> value;  ///< null where it lacks the key; nullopt: any but null and false
  bool is_not = false;        ///< any value but that
};

/// Why an engine does not use the scales of a model, and the checkpoints of which that is so.
struct Miss {
  MissEffect effect = MissEffect::kOnes;
  std::string why = {};
  /// quant_methods, as in MethodRules; empty: any.
  std::vector<std::string> methods = {};
  /// Endings of tensors' names, or beginnings, which end in a dot, one of which the checkpoint has;
  /// empty: any scale.
  std::vector<std::string> names = {};
  /// All of which the checkpoint has. A verdict on a type alone passes over misses with settings.
  std::vector<Setting> settings = {};
  bool needs_weights = false;    ///< the miss is for checkpoints whose weights are quantized, too
  bool needs_attention = false;  ///< for those with a group of attention in config_groups
  /// Its attention has no parameters of scales, so a file of scales can be given beside them.
  bool lacks_parameters = false;
};

/// What was seen of a name. WhenAsked: the cache keeps 16 bits unless FP8 is asked for.
enum class NameOutcome : uint8_t {
  kNotTried,
  kLoaded,
  kDropped,  ///< the cache has 1.0
  kRefused,  ///< the loader stops
  kLoadedWhenAsked,
  kDroppedWhenAsked,
  kSixteenBits,  ///< the cache keeps 16 bits, whatever is asked for
};

/// How an engine reads the names of scales of a model's layers. Names are those that were tried
/// with its loader, with k or v for {}: those below the attention module, which begin with a dot,
/// and others of the layer, which begin with "layer.". Of others it is not known what becomes of
/// them.
struct NameReading {
  std::string method;  ///< quant_method of the checkpoints that were tried
  std::map<NameOutcome, std::vector<std::string>> names;

  bool has(NameOutcome outcome) const { return names.contains(outcome); }
};

struct TriedName {
  NameOutcome outcome = NameOutcome::kNotTried;
  char side = 0;  ///< 'k' or 'v'; 0: the name is of both, or was not tried
};
/// rest: ".attn.k_scale", or "layer.k_scale".
TriedName tried_name(const NameReading& reading, std::string_view rest);

template <class Value>
using ByType = std::map<std::string, Value, std::less<>>;  ///< by model_type

struct EngineAnswers {
  std::map<std::string, Miss, std::less<>> misses;
  /// Of every type that the engine's own code was run on; the first that fits decides.
  ByType<std::vector<const Miss*>> types;
  /// Of multimodal types: those of the text models inside, with which they were run; "-" for a
  /// config.json that names none.
  ByType<std::vector<std::string>> inner;
  std::vector<std::string> scales_file;  ///< types of which it takes kv_cache_scales.json
  std::string release;                   ///< that was run: "0.33.0" for the version "0.33"
  std::string date;                      ///< on which it gave the last answer, as 2026-11-28
  ByType<NameReading> drafts;            ///< of the draft layer, of models that were tried with one
  ByType<std::vector<NameReading>> names;  ///< of the model's layers, one for each method
  /// Types whose loaders stop at a tensor for which the model has no place, or pass over it, where
  /// that is another thing than EngineRules::unknown says.
  std::vector<std::string> stop_at_strays, pass_strays;
  /// Types of models, by a part of a fused Linear ("k_proj", "up_proj", "kv_a_proj"; "shared", K of
  /// a layer that reads another layer's cache; "expert"): those whose parts it does not compare,
  /// and those whose parts it does not run as one.
  std::map<std::string, std::vector<std::string>, std::less<>> apart, unfused;
  /// Of prediction layers; else it passes over their tensors.
  bool runs_drafts = true;

  bool has_run(std::string_view model_type) const { return types.contains(model_type); }
  /// The same of a checkpoint, whose text model may be another one than those that were run.
  /// inner_type: of the text model, where config.json does not name it.
  bool has_run(std::string_view model_type, std::string_view inner_type, const Json& config) const;
};

/// Whether a stands before b where runs of digits count as numbers: "0.9" before "0.10".
bool comes_before(std::string_view a, std::string_view b);

/// Names of the compiled-in tables of an engine, "vllm_0.32" for "vllm", the oldest version first.
std::vector<std::string_view> answers_of(std::string_view engine);
/// A table's content. Throws std::out_of_range for another name.
const EngineAnswers& engine_answers(std::string_view table);
std::span<const EmbeddedText> answer_tables();

/// A checkpoint, as far as misses tell checkpoints apart.
struct MissQuery {
  std::string_view model_type, method;  ///< quant_method
  std::vector<std::string> names = {};  ///< of its scales; of those of Linears the ends alone
  /// Of its scales of the cache, as in NameReading.
  std::vector<std::string> rests = {};
  bool has_weights = false;      ///< quantized ones
  bool has_attention = false;    ///< a group of attention in config_groups
  const Json* config = nullptr;  ///< config.json; nullptr: not known
};
/// How the scales of a checkpoint's layers are read; nullptr: its names were not tried.
const NameReading* find_names(const EngineAnswers& answers, std::string_view model_type,
                              std::string_view method);
/// The first miss that a checkpoint meets and that what was seen of its names does not contradict;
/// nullptr: none.
const Miss* find_miss(const EngineAnswers& answers, const MissQuery& subject);

/// Whether a quant_method is that of a rule: "" where there is none; one that ends in '*' stands
/// for all that begin so.
bool matches_method(std::string_view pattern, std::string_view method);

}  // namespace kvcal
