/// Readers of a manifest. It may come from strangers: all throw Error naming the key of a value
/// that is not as we write it.

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "inspect/inspection.h"
#include "quant/provenance.h"
#include "report/checkpoint_report.h"

namespace kvcal {

/// The manifest of a folder, or beside it where several formats share one; null for none.
Json find_manifest(const std::filesystem::path& folder);

/// The manifest's entry of a layer; nullptr for none.
const Json* find_layer(const Json& manifest, int64_t layer);

/// A number, or a list of them; empty for neither. Throws Error for anything else, negative numbers
/// and those that are not finite, too.
std::vector<float> magnitudes(const Json& object, const std::string& key);

/// Statistics of K ("k") or V from a layer's entry; without its scales.
report::CacheTensor cache_tensor(const Json& layer, const std::string& side);

/// What the cache does to the attention of a layer's entry; nullopt where it does not say.
std::optional<report::LayerDamage> layer_damage(const Json& layer);

/// Layers that are largest at the last positions; nullopt where the summary names none.
std::optional<LatePositions> late_positions_of(const Json& manifest);
/// Those of a run with images.
std::optional<ImageMagnitudes> image_magnitudes_of(const Json& manifest);

/// Sentences on what the cache costs, as calibrate measured it or, where it did not, predicts;
/// empty where neither is known.
std::vector<std::string> verdicts_of(const Json& manifest);
/// What the run warned of; none where the manifest does not say.
std::vector<std::string> warnings_of_run(const Json& manifest);

/// The outcome of a calibration's stop rule; nullopt where it had none.
std::optional<StopOutcome> stop_outcome(const Json& manifest);

/// The values of a checkpoint's page. Throws Error naming manifest, layer and key where the
/// manifest is not as we write it.
report::CheckpointReport page_values(const InspectionResult& checkpoint,
                                     const std::string& version);

/// The same for the output of a calibration of a model: of the checkpoint in it, the first of
/// several, or where it holds a file of scales alone, of the model with these. place: where output,
/// which is not visible yet, will be.
report::CheckpointReport page_values(const std::filesystem::path& output,
                                     const std::filesystem::path& place, const std::string& model,
                                     const std::string& version, const FamilyChoice& family = {});

}  // namespace kvcal
