#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Whether an engine uses the KV scales of a checkpoint in one of our formats, as far as it was
/// tried or read in its source. kNotKnown is no guess either way.
enum class Reads { kYes, kNo, kNotKnown };
std::string_view name_of(Reads reads);

/// What happens to a model whose scales an engine does not use.
enum class MissEffect { kOnes, kRefused, kRefusedWithoutGroups };

/// A model_type of config.json whose scales an engine does not use; "*" stands for all others.
struct Miss {
  std::string_view model_type, why;
  MissEffect effect = MissEffect::kOnes;
};

/// What is known of one engine and one format.
struct EngineFormat {
  std::string_view engine, version, format;
  std::vector<std::string_view> reads;  ///< model types whose scales it uses
  std::vector<Miss> misses;
  std::string_view note;  ///< what it needs, where it does not miss the model
};

/// The table; engines.cc says how each row was found.
const std::vector<EngineFormat>& engine_formats();

/// One row of the table for one model.
struct EngineVerdict {
  std::string_view engine, version, format;
  Reads reads = Reads::kNotKnown;
  std::string_view note;
};

/// The entry for a model_type itself, "*" left out; nullptr where there is none.
const Miss* find_miss(const EngineFormat& row, std::string_view model_type);

/// All rows for a model_type of config.json (of a multimodal checkpoint: the outer one).
std::vector<EngineVerdict> engine_verdicts(std::string_view model_type);

}  // namespace kvcal
