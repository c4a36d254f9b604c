#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engines/cache_choice.h"
#include "engines/engine_rules.h"
#include "engines/scale_tensors.h"
#include "engines/verify_report.h"
#include "family/model_config.h"

namespace kvcal {

/// The user's options for an engine, and the platform that runs it.
struct VerifyOptions {
  std::string kv_cache_dtype = "auto";
  bool is_rocm = false;  ///< a platform that stores E4M3 as FNUZ (MI300)
  int64_t tp_size = 1;
  std::filesystem::path scales;  ///< a kv_cache_scales.json beside the checkpoint; empty: none
  std::vector<int64_t> skip_layers = {};  ///< whose caches it is told to leave in 16 bits
  FamilyChoice family = {};               ///< of a model_type that is not known
};

/// One engine in front of one checkpoint. Borrows everything.
struct VerifyCase {
  const ModelConfig& config;
  const std::string& model_type;  ///< config.json's, of a multimodal checkpoint the outer one
  const EngineRules& engine;
  const MethodRules& rules;
  const Miss* miss;  ///< that its models meet with this checkpoint; null: none
  const CacheDeclaration& declaration;
  const CacheChoice& choice;
  const VerifyOptions& options;
  const std::vector<ScaleTensor>& tensors;
  std::string dtype;   ///< in which it runs the model, which it may round scales to
  std::string remedy;  ///< the command that makes what the engine reads
};

/// Whether the engine takes scales of heads from the checkpoint.
bool takes_head_scales(const VerifyCase& subject);

/// The tensors that a loader puts in one layer's places.
struct PlacedScales {
  const ScaleTensor *k = nullptr, *v = nullptr, *both = nullptr;
};

struct Placement {
  std::map<int64_t, PlacedScales> layers;  ///< every layer that attends
  bool loads = true;
};

/// Walks the tensors in the order of their names, as loaders do, and tells what is dropped,
/// overwritten, misshapen, or stops the loader.
Placement place_scales(const VerifyCase& subject, Findings& findings);

/// The engine's arithmetic on what was placed; tells what is 1.0, shared, rounded or no scale. Sets
/// loads to false where the arithmetic stops the engine.
std::vector<HeldLayer> held_scales(const VerifyCase& subject, const Placement& placement,
                                   Findings& findings, bool& loads);

}  // namespace kvcal
