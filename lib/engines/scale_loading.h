#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "engines/cache_choice.h"
#include "engines/engine_rules.h"
#include "engines/scale_tensors.h"
#include "engines/verify.h"
#include "family/model_config.h"

namespace kvcal {

/// One engine in front of one checkpoint. Borrows everything.
struct VerifyCase {
  const ModelConfig& config;
  const std::string& model_type;  ///< config.json's, of a multimodal checkpoint the outer one
  const EngineRules& engine;
  const MethodRules& rules;
  const Miss* miss;          ///< that its models meet with this checkpoint; null: none
  bool is_known;             ///< the engine was run with such models
  const NameReading* names;  ///< how it was seen to read names of scales; null: they were not tried
  const CacheDeclaration& declaration;
  const CacheChoice& choice;
  const VerifyOptions& options;
  const std::vector<ScaleTensor>& tensors;
  bool has_int8_scales;  ///< the checkpoint says that they are of an INT8 cache
  std::string dtype;     ///< in which it runs the model, which it may round scales to
  std::string remedy;    ///< the command that makes what the engine reads
};

/// Why the engine refuses the checkpoint whatever its model; empty: it does not.
std::string refusal_of(const VerifyCase& subject, const ModelDir& model_dir);

/// Why the engine refuses a model by its config.json, whatever the quantization: windows that it
/// does not take, or a text model inside that it does not run; empty: it does not.
std::string model_refusal(const EngineRules& engine, const ModelConfig& config, const Json& json);

/// Of a multimodal model around a text model with which it was not tried: why the engine does not
/// start with the text model by itself; nullptr: it does.
const Miss* refusal_inside(const EngineRules& engine, MissQuery query, const ModelConfig& config);

/// Whether the checkpoint's scheme leaves it to the engine to compute scales as it runs.
bool is_dynamic(const CacheDeclaration& declaration);

/// Whether the engine takes scales of heads from the checkpoint.
bool takes_head_scales(const VerifyCase& subject);

/// The tensors that a loader puts in one layer's places.
struct PlacedScales {
  const ScaleTensor *k = nullptr, *v = nullptr, *both = nullptr;

  bool has_any() const { return k || v || both; }
};

struct Placement {
  std::map<int64_t, PlacedScales> layers;  ///< every layer that attends
  bool loads = true;

  bool has_any() const {
    return std::ranges::any_of(layers, [](const auto& entry) { return entry.second.has_any(); });
  }
};

/// Walks the tensors in the order of their names, as loaders do, and tells what is dropped,
/// overwritten, misshapen, or stops the loader.
Placement place_scales(const VerifyCase& subject, Findings& findings);

/// The engine's arithmetic on what was placed; tells what is 1.0, shared, rounded or no scale. Sets
/// loads to false where the arithmetic stops the engine.
std::vector<EngineLayer> held_scales(const VerifyCase& subject, const Placement& placement,
                                     Findings& findings, bool& loads);

/// kv_cache_scales.json as the validators of SGLang and Aphrodite take it. Source: SGLang 0.5.23,
/// `QuantParamSchema` and `KVCacheQuantSchema`; Aphrodite 0.6 has the same.
struct ScalesFileContent {
  std::string rejection;  ///< why the validators fall back to 1.0 everywhere; empty: they do not
  std::vector<std::vector<float>> layers;  ///< one value a rank, [num_hidden_layers][tp_size]
};
ScalesFileContent read_scales_file(const std::filesystem::path& path, const ModelConfig& config,
                                   int64_t tp_size);

/// Whether the engine was given a file, and reads it for models of this type.
bool uses_scales_file(const VerifyCase& subject);

/// Applies a file of scales to the report's values from the checkpoint, and tells where the engine
/// does not read the file or does not take its values. Sets report.loads to false where the engine
/// stops.
void apply_scales_file(const VerifyCase& subject, VerifyReport& report, Findings& findings);

/// Tells how the engine's loader of drafts reads the scales of the checkpoint's draft layer
/// (family/draft_layer.h), where it has one. An error: the loader stops at a name, so that no
/// server with drafts starts. A warning: the draft's cache has the scale 1.0, since the loader
/// drops the scale or there is none; more drafted tokens are rejected, and the answers stay. The
/// model itself loads either way.
void check_draft_scales(const VerifyCase& subject, const ModelDir& model_dir, bool has_fp8_cache,
                        Findings& findings);

}  // namespace kvcal
