#include "recipe/presets.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/folder.h"
#include "core/registry.h"
#include "core/text.h"

namespace kvcal {
namespace {

/// QuantArgs of a preset, as far as presets differ.
struct PresetArgs {
  QuantType type = QuantType::kFloat;
  int num_bits = 8;
  Strategy strategy = Strategy::kTensor;
  bool is_dynamic = false;
  int64_t group_size = 0;  ///< 0: none
  int64_t block_side = 0;  ///< 0: no blocks
  std::string_view scale_dtype = {}, observer = {};
  bool symmetric = true;
};

struct PresetRow {
  std::string_view name;
  std::optional<PresetArgs> weights = {}, inputs = {};
  std::string_view outside = {};  ///< why recipes do not perform it
  /// Why weights alone do not make a checkpoint, and what to do instead.
  std::string_view needs_more = {};
};

constexpr std::string_view kInt = "integer weights", kNvfp4 = "NVFP4, FP4 weights",
                           kMxfp4 = "MXFP4, FP4 weights", kMxfp6 = "MXFP6, FP6 weights",
                           kMxfp8 = "MXFP8, whose scales are powers of two in eight bits",
                           kInt4 = "INT4 weights", kInt8 = "INT8 weights and inputs";
constexpr std::string_view kE4m3Name = "torch.float8_e4m3fn", kE8m0Name = "torch.uint8";

constexpr PresetArgs int_weights(int bits) {
  return {
      .type = QuantType::kInt, .num_bits = bits, .strategy = Strategy::kGroup, .group_size = 128};
}
constexpr PresetArgs int_inputs(int bits) {
  return {
      .type = QuantType::kInt, .num_bits = bits, .strategy = Strategy::kToken, .is_dynamic = true};
}
constexpr PresetArgs kFp8Token{.strategy = Strategy::kToken, .is_dynamic = true};
constexpr PresetArgs kInt8Channel{.type = QuantType::kInt, .strategy = Strategy::kChannel};
constexpr PresetArgs kNvfp4Weights{
    .num_bits = 4, .strategy = Strategy::kTensorGroup, .group_size = 16, .scale_dtype = kE4m3Name};
constexpr PresetArgs mx(int bits, bool is_dynamic = false) {
  return {.num_bits = bits,
          .strategy = Strategy::kGroup,
          .is_dynamic = is_dynamic,
          .group_size = 32,
          .scale_dtype = kE8m0Name};
}
constexpr PresetArgs kInt4Asymmetric = [] {
  PresetArgs args = int_weights(4);
  args.symmetric = false;
  return args;
}();

/// A preset of integer weights, with 16-bit inputs for 16.
constexpr PresetRow int_row(std::string_view name, int bits, int input_bits,
                            std::string_view outside = kInt) {
  PresetRow row{.name = name, .weights = int_weights(bits), .outside = outside};
  if (input_bits < 16) row.inputs = int_inputs(input_bits);
  return row;
}

// Source: compressed-tensors 0.20.1 `quantization/quant_scheme.py`, PRESET_SCHEMES.
constexpr PresetRow kPresets[] = {
    {.name = "FP8",
     .weights = PresetArgs{},
     .inputs = PresetArgs{.observer = "static_minmax"},
     .needs_more = "its inputs have static scales, which need data: choose FP8_DYNAMIC, or kvcal "
                   "calibrate with a recipe"},
    {.name = "FP8_DYNAMIC",
     .weights = PresetArgs{.strategy = Strategy::kChannel},
     .inputs = kFp8Token},
    {.name = "FP8_BLOCK",
     .weights = PresetArgs{.strategy = Strategy::kBlock, .block_side = 128},
     .inputs = PresetArgs{.strategy = Strategy::kGroup, .is_dynamic = true, .group_size = 128}},
    {.name = "UNQUANTIZED", .needs_more = "it leaves weights as they are"},
    {.name = "W4AFP8", .weights = int_weights(4), .inputs = kFp8Token, .outside = kInt4},
    {.name = "NVFP4",
     .weights = kNvfp4Weights,
     .outside = kNvfp4,
     .needs_more = "its inputs have a static global scale, which needs data: choose NVFP4A16"},
    {.name = "NVFP4A16", .weights = kNvfp4Weights, .outside = kNvfp4},
    {.name = "MXFP4", .weights = mx(4), .inputs = mx(4, true), .outside = kMxfp4},
    {.name = "MXFP4XFP8",
     .weights = mx(4),
     .inputs = PresetArgs{.strategy = Strategy::kGroup, .is_dynamic = true, .group_size = 128},
     .outside = kMxfp4},
    {.name = "MXFP4A16", .weights = mx(4), .outside = kMxfp4},
    {.name = "MXFP6A8", .weights = mx(6), .inputs = mx(8, true), .outside = kMxfp6},
    {.name = "MXFP6A16", .weights = mx(6), .outside = kMxfp6},
    {.name = "MXFP8", .weights = mx(8), .inputs = mx(8, true), .outside = kMxfp8},
    {.name = "MXFP8A16", .weights = mx(8), .outside = kMxfp8},
    {.name = "W8A8", .weights = kInt8Channel, .inputs = int_inputs(8), .outside = kInt8},
    {.name = "INT8", .weights = kInt8Channel, .inputs = int_inputs(8), .outside = kInt8},
    {.name = "W4A16_ASYM", .weights = kInt4Asymmetric, .outside = kInt4},
    int_row("W2A4", 2, 4),
    int_row("W2A8", 2, 8),
    int_row("W2A16", 2, 16),
    int_row("W3A4", 3, 4),
    int_row("W3A8", 3, 8),
    int_row("W3A16", 3, 16),
    int_row("W4A4", 4, 4),
    int_row("W4A8", 4, 8),
    int_row("W4A16", 4, 16),
    int_row("W5A8", 5, 8),
    int_row("W5A16", 5, 16),
    int_row("W6A8", 6, 8),
    int_row("W6A16", 6, 16),
    int_row("W7A8", 7, 8),
    int_row("W7A16", 7, 16),
    int_row("W8A16", 8, 16),
};

/// Words that people use, and the preset that they mean.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"INT4", "W4A16"},
    {"4BIT", "W4A16"},
    {"W4", "W4A16"},
    {"AWQ", "W4A16"},
    {"GPTQ", "W4A16"},
    {"INT8_DYNAMIC", "W8A8"},
    {"W8A8_INT8", "W8A8"},
    {"8BIT", "INT8"},
    {"FP4", "NVFP4A16"},
    {"W4A16_FP4", "NVFP4A16"},
    {"W8A8_FP8", "FP8_DYNAMIC"},
    {"FP8_PER_CHANNEL", "FP8_DYNAMIC"}};

/// The preset that an unknown name means, for the end of a message.
std::string meant_preset(const std::string& upper, const std::vector<std::string>& names) {
  const auto* row =
      std::ranges::find(kOtherNames, upper, &std::pair<std::string_view, std::string_view>::first);
  const bool is_named =
      row != std::end(kOtherNames) && std::ranges::find(names, row->second) != names.end();
  return is_named ? " (did you mean '" + std::string(row->second) + "'?)"
                  : did_you_mean(upper, names);
}

std::optional<QuantArgs> args_of(const std::optional<PresetArgs>& preset) {
  if (!preset) return std::nullopt;
  QuantArgs args;
  args.type = preset->type;
  args.num_bits = preset->num_bits;
  args.symmetric = preset->symmetric;
  args.strategy = preset->strategy;
  args.dynamic = preset->is_dynamic;
  if (preset->group_size > 0) args.group_size = preset->group_size;
  if (preset->block_side > 0)
    args.block_structure = std::vector<int64_t>{preset->block_side, preset->block_side};
  if (!preset->scale_dtype.empty()) args.scale_dtype = preset->scale_dtype;
  if (!preset->symmetric) args.zp_dtype = "torch.int8";
  if (!preset->observer.empty()) args.observer = preset->observer;
  return args;
}

/// The preset with this name, in any case, or null.
const PresetRow* find_preset(std::string_view name) {
  const auto* row = std::ranges::find(kPresets, ascii_upper(std::string(name)), &PresetRow::name);
  return row == std::end(kPresets) ? nullptr : row;
}

template <class IsWanted>
std::vector<std::string> names_of(const IsWanted& is_wanted) {
  std::vector<std::string> names;
  for (const PresetRow& row : kPresets)
    if (is_wanted(row)) names.emplace_back(row.name);
  return names;
}

/// Who makes a preset that no recipe performs.
std::string maker_of(const PresetRow& row) {
  const std::string name(row.name);
  if (!row.needs_more.empty())
    return "'" + name + "' is no scheme for weights alone: " + std::string(row.needs_more);
  return "'kvcal quantize MODEL --scheme " + name + "' rounds weights to it, without data";
}

}  // namespace

std::vector<std::string> preset_names() {
  return names_of([](const PresetRow& row) { return row.outside.empty() && row.weights; });
}

bool is_preset(std::string_view name) {
  return find_preset(name) != nullptr;
}

QuantScheme read_preset(const YamlNode& name, const std::string& path) {
  const PresetRow* row = find_preset(name.text);
  const auto names = names_of([](const PresetRow& one) { return one.outside.empty(); });
  if (row == nullptr)
    fail_at(name, path, ": unknown scheme ", describe(name),
            meant_preset(ascii_upper(name.text), names), "; performed are ", join(names, ", "));
  if (!row->outside.empty())
    fail_at(name, path, ": found ", describe(name), " (", row->outside,
            "), which a calibration does not make; ", maker_of(*row), "; performed are ",
            join(names, ", "));
  return {.targets = {},
          .weights = args_of(row->weights),
          .input_activations = args_of(row->inputs),
          .format = {}};
}

WeightScheme weight_scheme(const std::string& name) {
  const PresetRow* row = find_preset(name);
  const std::string upper = ascii_upper(name);
  if (row == nullptr) {
    const auto names = names_of([](const PresetRow& one) { return one.needs_more.empty(); });
    fail("unknown scheme '", name, "'", meant_preset(upper, names), "; known are ",
         join(names, ", "));
  }
  if (!row->needs_more.empty())
    fail("'", name, "' is no scheme for weights alone: ", row->needs_more);
  return {.name = upper, .weights = *args_of(row->weights), .inputs = args_of(row->inputs)};
}

std::optional<std::string> named_recipe(const std::filesystem::path& given) {
  if (given.has_parent_path() || is_there(given)) return std::nullopt;
  const std::string name = given.string();
  for (const EmbeddedText& file : builtin_recipes())
    if (file.stem() == name) return std::string(file.text);
  if (!is_preset(name)) return std::nullopt;
  return "default_stage:\n"
         "  default_modifiers:\n"
         "    QuantizationModifier:\n"
         "      targets: [Linear]\n"
         "      scheme: " +
         name +
         "\n"
         "      ignore: [lm_head]\n";
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const EmbeddedText& file : builtin_recipes()) names.emplace_back(file.stem());
  for (std::string& name : preset_names()) names.push_back(std::move(name));
  return names;
}

std::filesystem::path recipe_seen_from(const std::filesystem::path& folder,
                                       const std::string& given) {
  const std::filesystem::path path = shortened(folder / given);
  return !is_there(path) && named_recipe(given) ? std::filesystem::path(given) : path;
}

}  // namespace kvcal
