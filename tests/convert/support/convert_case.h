#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convert/conversion.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "recipe/recipe.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal::test {

inline fs::path model_fixture(const std::string& name) {
  return tests_folder() / "fixtures" / "models" / name;
}

/// The scale of one head; side is 'k' or 'v'. Of strategy tensor head 0 alone is asked for.
using ScaleOf = std::function<float(int64_t layer, char side, int64_t head)>;

/// No two the same. Each is a power of two times what its layer has: losses are whole octaves.
float scales_apart(int64_t layer, char side, int64_t head);
/// One value a layer for K, V and all heads.
float one_scale_a_layer(int64_t layer, char side, int64_t head);

/// A recipe of llm-compressor: weights are lines of a modifier ("scheme: FP8_DYNAMIC"), none for 16
/// bits; kv_strategy "tensor" or "attn_head", empty: K and V have no scales; ignored: modules,
/// comma separated.
std::string recipe_text(const std::string& weights, const std::string& kv_strategy,
                        const std::string& ignored = {});

/// What a calibration by a recipe gives, with the scales that a test wants.
struct Calibrated {
  Calibrated(const fs::path& folder, const std::string& recipe_text, const ScaleOf& scale_of);
  ExportInput input() const {
    return {.model = model, .calibration = calibration, .config = &config, .recipe = &recipe};
  }

  ModelDir model;
  ModelConfig config;
  Recipe recipe;
  Calibration calibration;
};

/// What calibrate writes into folder, with its manifest.
void write_calibrated(const ExportInput& input, const std::string& format, const fs::path& folder);

/// What `kvcal convert` was asked for; target is made.
struct ConvertRun {
  fs::path checkpoint;
  std::vector<std::string> formats;  ///< several: a folder each in target
  fs::path target = {};
  ConversionOptions options = {};
  int64_t tp_size = 1;
  bool scales_only = false;
  bool has_manifest = true;
};

/// What a conversion told the user, and what it lost in its first format.
struct Converted {
  std::vector<std::string> notes, warnings;
  std::vector<LayerLoss> losses;
};

/// Does it as convert_checkpoint does. Throws Error.
Converted convert(const ConvertRun& run);

/// Puts an overlay on a checkpoint as apply_overlay does.
Converted apply(const fs::path& overlay, const fs::path& checkpoint, const fs::path& target);

/// Files of an output, without those that tell how it was made.
std::map<std::string, std::string> outputs_of(const fs::path& folder);

/// Empty where both are the same, else the first difference, for messages.
std::string difference(const std::map<std::string, std::string>& actual,
                       const std::map<std::string, std::string>& expected);

/// A tensor's float32 values.
std::vector<float> values_of(const ModelDir& model, const std::string& tensor);

/// The message with which a conversion is refused; "no error" if it is not.
std::string refusal_of(ConvertRun run);

void write_json(const fs::path& file, const Json& json);

/// config.json of a folder after a change.
void change_config(const fs::path& folder, const std::function<void(Json& config)>& change);

/// A copy of a folder that a test may change, or its files put into one that is there.
void copy_folder(const fs::path& source, const fs::path& target);

/// kv_cache_scales.json with scales[rank][layer].
void write_scales_json(const fs::path& file, const std::vector<std::vector<float>>& scales,
                       const std::string& dtype = "float8_e4m3fn",
                       const std::string& model_type = "llama");

/// Whether one of lines has part in it.
bool tells(const std::vector<std::string>& lines, std::string_view part);

}  // namespace kvcal::test
