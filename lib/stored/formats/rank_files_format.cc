#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/npz.h"
#include "checkpoint/safetensors.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/text.h"
#include "quant/scale.h"
#include "stored/stored_format.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

constexpr std::string_view kNpz = ".npz", kSafetensors = ".safetensors";
constexpr std::string_view kDigits = "0123456789";
/// Longer numbers are a date or a hash, not a rank.
constexpr size_t kMaxRankDigits = 5;
constexpr int64_t kMaxRanks = 100'000;

struct RankFile {
  fs::path path;
  int64_t rank = 0;

  std::string name() const { return path.filename().string(); }
};

/// Files of an export in one folder.
struct ExportFiles {
  std::vector<RankFile> ranks;  ///< in the order of ranks, then names
  std::vector<fs::path> ammo_configs;
};

/// N where stem is "word<N>", or ends with it after "_", "-" or ".".
std::optional<int64_t> number_after(std::string_view word, std::string_view stem) {
  const size_t begin = stem.find_last_not_of(kDigits) + 1;
  const std::string_view digits = stem.substr(begin);
  std::string_view rest = stem.substr(0, begin);
  if (digits.empty() || digits.size() > kMaxRankDigits || !rest.ends_with(word))
    return std::nullopt;
  rest.remove_suffix(word.size());
  if (!rest.empty() && !rest.ends_with('_') && !rest.ends_with('-') && !rest.ends_with('.'))
    return std::nullopt;
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

ExportFiles list_files(const fs::path& folder) {
  ExportFiles files;
  for (const fs::path& path : paths_in(folder)) {
    if (type_of(path) != fs::file_type::regular) continue;
    const std::string extension = path.extension().string(), stem = path.stem().string();
    if (extension == kNpz || extension == kSafetensors) {
      if (const auto rank = number_after("rank", stem)) files.ranks.push_back({path, *rank});
    } else if (extension == ".json" && number_after("tp", stem)) {
      files.ammo_configs.push_back(path);
    }
  }
  std::ranges::sort(files.ranks, {},
                    [](const RankFile& file) { return std::pair(file.rank, file.name()); });
  return files;
}

/// Division of the model: rank = stage * tp_size + tensor-parallel rank.
struct Division {
  int64_t tp_size = 1, pp_size = 1;
  int64_t ranks() const { return tp_size * pp_size; }
};

/// Layers of one pipeline stage.
struct LayerRange {
  int64_t first = 0, count = 0;
};

LayerRange layers_of_stage(int64_t stage, const Division& division, int64_t layers) {
  const int64_t each = layers / division.pp_size, more = layers % division.pp_size;
  return {.first = stage * each + std::min(stage, more), .count = each + (stage < more ? 1 : 0)};
}

int64_t size_of(const Json& object, std::string_view key) {
  const int64_t size = optional_int(object, key).value_or(1);
  if (size < 1 || size > kMaxRanks)
    fail("key '", key, "' is ", size, ", expected 1 to ", kMaxRanks);
  return size;
}

/// Throws Error for a cache other than FP8, whose scales refer to another largest value.
void check_algorithm(const Json& object, std::string_view key) {
  const std::string algorithm = optional_string(object, key).value_or("");
  if (!algorithm.empty() && algorithm != "FP8")
    fail("key '", key, "' is ", shown_name(algorithm), ", expected 'FP8': these are not the ",
         "scales of an FP8 cache");
}

/// Checks a TensorRT-LLM config.json. nullopt where it has no mapping.
std::optional<Division> division_of(const Json& json, const ModelConfig& config) {
  if (const Json* quantization = object_member(json, "quantization"))
    check_algorithm(*quantization, "kv_cache_quant_algo");
  const auto layers = optional_int(json, "num_hidden_layers");
  if (layers && *layers != config.num_hidden_layers)
    fail("num_hidden_layers is ", *layers, ", the model has ", config.num_hidden_layers);
  const Json* mapping = object_member(json, "mapping");
  if (!mapping) return std::nullopt;
  return in_context("mapping", [&] {
    const Division division{.tp_size = size_of(*mapping, "tp_size"),
                            .pp_size = size_of(*mapping, "pp_size")};
    const auto world_size = optional_int(*mapping, "world_size");
    if (world_size && *world_size != division.ranks())
      fail("world_size is ", *world_size, ", tp_size ", division.tp_size, " times pp_size ",
           division.pp_size, " is ", division.ranks());
    return division;
  });
}

/// division_of for the JSON that AMMO wrote beside npz files, and beside the first safetensors.
Division division_of_ammo(const Json& json) {
  const Json* layers = find_field(json, "layers");
  if (layers && !layers->is_array()) fail_kind("layers", "an array", *layers);
  for (size_t layer = 0; layers && layer < layers->size(); ++layer)
    in_context("layer " + std::to_string(layer), [&] {
      if (!(*layers)[layer].is_object()) fail_kind("layers", "objects", (*layers)[layer]);
      if (const Json* attention = object_member((*layers)[layer], "attention"))
        check_algorithm(*attention, "kv_cache_dtype");
    });
  return {.tp_size = size_of(json, "tensor_parallel"),
          .pp_size = size_of(json, "pipeline_parallel")};
}

Division read_division(const fs::path& folder, const ExportFiles& files,
                       const ModelConfig& config) {
  std::optional<Division> division;
  const auto read = [](const fs::path& path, const auto& division_in) {
    const Json json = read_json_object(path);
    return in_context(path.string(), [&] { return division_in(json); });
  };
  if (is_there(folder / "config.json"))
    division =
        read(folder / "config.json", [&](const Json& json) { return division_of(json, config); });
  if (files.ammo_configs.size() > 1)
    fail(folder.string(), ": two exports, ", files.ammo_configs[0].filename().string(), " and ",
         files.ammo_configs[1].filename().string(), ", expected one");
  if (!files.ammo_configs.empty()) {
    const Division of_ammo = read(files.ammo_configs[0], division_of_ammo);
    if (!division) division = of_ammo;
  }
  if (!division) return {.tp_size = files.ranks.back().rank + 1};
  if (division->pp_size > config.num_hidden_layers)
    fail(folder.string(), ": ", division->pp_size, " pipeline stages, the model has ",
         counted(config.num_hidden_layers, "layer"));
  return *division;
}

/// Throws Error unless ranks are 0 to ranks - 1, one file each. files: in the order of ranks.
void check_ranks(const std::vector<RankFile>& files, int64_t ranks) {
  for (size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && files[i].rank == files[i - 1].rank)
      fail("rank ", files[i].rank, " is in both ", files[i - 1].name(), " and ", files[i].name(),
           ", expected one file a rank");
    if (files[i].path.extension() != files[0].path.extension())
      fail(files[0].name(), " and ", files[i].name(), " are of two formats, expected one");
    if (files[i].rank >= ranks)
      fail(files[i].name(), " is beyond the ", counted(ranks, "rank"),
           " that tp_size times pp_size makes");
    if (files[i].rank != static_cast<int64_t>(i))
      fail("the file of rank ", i, " of ", ranks, " is missing, the next one is ", files[i].name());
  }
  if (static_cast<int64_t>(files.size()) != ranks)
    fail("the file of rank ", files.size(), " of ", ranks, " is missing, the last one is ",
         files.back().name());
}

/// Scales of one layer in a rank file.
struct LayerValues {
  std::optional<float> both, k, v;
};

struct ScaleKind {
  std::string_view name;
  std::optional<float> LayerValues::*value;
};
constexpr std::array<ScaleKind, 3> kScaleKinds{{{"kv_cache_scaling_factor", &LayerValues::both},
                                                {"k_cache_scaling_factor", &LayerValues::k},
                                                {"v_cache_scaling_factor", &LayerValues::v}}};

/// A tensor's kind of scale and its layer.
using ScaleName = std::pair<const ScaleKind*, int64_t>;

/// Parses the name of a tensor; nullopt where the tensor holds no scale.
std::optional<ScaleName> scale_name_of(std::string_view name) {
  constexpr std::string_view kSeparators = ".:";
  const std::string_view last = name.substr(name.find_last_of(kSeparators) + 1);
  const auto kind = std::ranges::find(kScaleKinds, last, &ScaleKind::name);
  if (kind == kScaleKinds.end()) return std::nullopt;
  std::optional<int64_t> layer;
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find_first_of(kSeparators));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.empty() || part.find_first_not_of(kDigits) != std::string_view::npos) continue;
    if (layer) fail("tensor ", shown_name(name), " has two numbers, expected its layer alone");
    int64_t number = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), number).ec != std::errc())
      fail("tensor ", shown_name(name), " has too large a number for a layer");
    layer = number;
  }
  if (!layer) fail("tensor ", shown_name(name), " has no number, expected its layer's");
  return ScaleName(&*kind, *layer);
}

float scale_in(const TensorView& tensor) {
  if (!is_float(tensor.dtype) && tensor.dtype != DType::kF64)
    fail("is ", tensor.dtype, ", expected F32, F16, BF16 or F64");
  if (element_count(tensor.shape) != 1)
    fail("has the shape ", tensor.shape, ", expected one value for all heads");
  float scale = 0.0f;
  if (tensor.dtype == DType::kF64) {
    double value = 0.0;
    std::memcpy(&value, tensor.bytes.data(), sizeof(value));
    scale = static_cast<float>(value);
  } else {
    scale = as_float32(std::span(&tensor, 1))[0];
  }
  if (!is_usable({scale})) fail("holds ", scale, ", expected ", kUsableScale);
  return scale;
}

/// Reads the values of one rank's file.
class RankReader {
 public:
  RankReader(const fs::path& path, LayerRange range, const ModelConfig& config)
      : path_(path), range_(range), config_(config), layers_(static_cast<size_t>(range.count)) {}

  /// One scale for each of the range's layers; 1.0 without attention.
  std::vector<Scale> read() {
    if (path_.extension() == kNpz) {
      const NpzFile file(path_);
      for (const NpzEntry& entry : file.entries())
        if (const auto name = named(entry.name)) add(*name, file.array(entry));
    } else {
      const SafetensorsFile file(path_);
      for (const TensorView& tensor : file.tensors())
        if (const auto name = named(tensor.name)) add(*name, tensor);
    }
    return in_context(path_.string(), [&] { return scales(); });
  }

 private:
  std::optional<ScaleName> named(std::string_view name) const {
    return in_context(path_.string(), [&] { return scale_name_of(name); });
  }

  void add(const ScaleName& name, const TensorView& tensor) {
    const auto& [kind, layer] = name;
    in_context(path_.string() + ": tensor " + shown_name(tensor.name),
               [&, kind = kind, layer = layer] {
                 if (layer >= range_.count)
                   fail("is of layer ", layer, ", the ", pipeline() ? "stage" : "model", " has ",
                        counted(range_.count, "layer"));
                 if (!config_.has_attention(range_.first + layer))
                   fail("is of ", place_of(layer), ", which has no attention");
                 auto& value = layers_[static_cast<size_t>(layer)].*(kind->value);
                 if (value) fail("is the second one of ", place_of(layer), ", expected one");
                 value = scale_in(tensor);
                 ++found_;
               });
  }

  std::vector<Scale> scales() const {
    if (found_ == 0)
      fail("holds no tensor named *.", kScaleKinds[0].name,
           "; was the KV cache quantized when it was exported?");
    std::vector<Scale> scales;
    for (int64_t layer = 0; layer < range_.count; ++layer) {
      if (!config_.has_attention(range_.first + layer)) {
        scales.push_back({1.0f});
        continue;
      }
      const LayerValues& values = layers_[static_cast<size_t>(layer)];
      if (!values.both && !values.k && !values.v)
        fail(place_of(layer), " has no ", kScaleKinds[0].name);
      if (!values.both && !(values.k && values.v))
        fail(place_of(layer), " has a ", kScaleKinds[values.k ? 1 : 2].name, " and no ",
             kScaleKinds[values.k ? 2 : 1].name);
      scales.push_back({values.both ? *values.both : std::max(*values.k, *values.v)});
    }
    return scales;
  }

  bool pipeline() const { return range_.count != config_.num_hidden_layers; }

  std::string place_of(int64_t layer) const {
    const std::string text = "layer " + std::to_string(layer);
    if (!pipeline()) return text;
    return text + ", the model's layer " + std::to_string(range_.first + layer);
  }

  const fs::path& path_;
  LayerRange range_;
  const ModelConfig& config_;
  std::vector<LayerValues> layers_;
  int64_t found_ = 0;
};

}  // namespace

bool has_rank_files(const fs::path& folder) {
  return is_folder(folder) && !list_files(folder).ranks.empty();
}

/// Reads the KV scales of a TensorRT-LLM checkpoint, as AMMO, ModelOpt (AMMO's later name) and
/// TensorRT-LLM's converters write it, one file a rank.
///
/// A scale is a tensor whose name ends in "kv_cache_scaling_factor": one F32, F16, BF16 or F64
/// element, with the layer as the only decimal part of the name: "transformer.layers.0.attention.…"
/// in safetensors, "_np:layers:0:attention:…" in npz. A layer with only "k_cache_…" and "v_cache_…"
/// gets the larger of both, as in TensorRT-LLM. "kv_cache_rcp_…", 1 / scale, is not read. The scale
/// is amax / 448 of the outputs of k_proj and v_proj, so K was observed before RoPE. Only early
/// AMMO releases write the measured value: later ones write 1.0 for every layer, and ModelOpt
/// raises values below 1.0 to 1.0.
///
/// The number of files follows from config.json's `mapping`, or from `<decoder>_tp<N>.json` beside
/// AMMO's npz files: rank = stage * tp_size + tensor-parallel rank. Each pipeline stage numbers its
/// layers from 0; the first stages have one layer more where the division leaves a remainder.
/// Without either file, every file is a tensor-parallel rank with all layers.
///
/// Throws Error naming file and tensor or layer for: no rank files; missing, duplicate or surplus
/// ranks; files of two formats; a cache that is not FP8 by kv_cache_quant_algo (INT8's scales are
/// amax / 127; null or an absent key is accepted); an impossible mapping or number of layers; a
/// layer that is missing, duplicate or not the model's; a tensor of another size or dtype; a scale
/// that is not finite and positive; a file that NpzFile or SafetensorsFile refuses.
///
/// Source: vLLM at 40d2e62, examples/fp8/extract_scales.py `_kv_scales_extractor` (names, ranks).
/// TensorRT-LLM, docs/source/architecture/checkpoint.md (config.json), `Mapping.pp_layers`,
/// `preprocess_weights` (separate K and V). AMMO and ModelOpt, torch/export: `weights_to_npz`
/// (names), `export_model_config` (`<decoder>_tp<N>.json`), `_split_model_config_for_pp` (stages),
/// `get_kv_cache_scaling_factor` (values).
ScalesBeside read_rank_files(const fs::path& folder, const ModelConfig& config) {
  const ExportFiles files = list_files(folder);
  if (files.ranks.empty())
    fail(folder.string(), ": no rank files, expected rank0", kSafetensors, " or *_rank0", kNpz);
  const Division division = read_division(folder, files, config);
  in_context(folder.string(), [&] { check_ranks(files.ranks, division.ranks()); });
  ScalesBeside scales;
  scales.ranks.resize(static_cast<size_t>(division.tp_size));
  for (const RankFile& file : files.ranks) {
    // Stages come in order, so each rank's layers are appended in order.
    const int64_t stage = file.rank / division.tp_size;
    const LayerRange range = layers_of_stage(stage, division, config.num_hidden_layers);
    auto& layers = scales.ranks[static_cast<size_t>(file.rank % division.tp_size)];
    for (const Scale scale : RankReader(file.path, range, config).read()) layers.push_back(scale);
  }
  return scales;
}

extern constinit const StoredFormat kRankFilesFormat{
    .name = "rank files",
    .keys = KeyPosition::kBeforeRope,
    // ModelOpt `get_kv_cache_scaling_factor`: max(amax / 448, 1.0).
    .may_raise_scales_to_one = true,
    .ranks_have_own_config = true,
    .find_beside =
        [](const fs::path& place) {
          return has_rank_files(place) ? std::optional(place) : std::nullopt;
        },
    .read_beside = read_rank_files};

}  // namespace kvcal
