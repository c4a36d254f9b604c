#include "recipe/presets.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

#include "core/join.h"
#include "core/registry.h"

namespace kvcal {
namespace {

/// QuantArgs of a preset, as far as presets differ: all are float, 8 bits, symmetric.
struct PresetArgs {
  Strategy strategy = Strategy::kTensor;
  bool is_dynamic = false;
  int64_t group_size = 0;  ///< 0: none
  int64_t block_side = 0;  ///< 0: no blocks
  std::string_view observer = {};
};

struct PresetRow {
  std::string_view name;
  std::string_view outside = {};  ///< why it is not performed
  std::optional<PresetArgs> weights = {}, inputs = {};
};

constexpr std::string_view kInt = "integer weights", kNvfp4 = "NVFP4, FP4 weights",
                           kMxfp4 = "MXFP4, FP4 weights",
                           kMxfp8 = "MXFP8, whose scales are powers of two in eight bits";

// Source: compressed-tensors 0.19 `quantization/quant_scheme.py`, PRESET_SCHEMES.
constexpr PresetRow kPresets[] = {
    {.name = "FP8", .weights = PresetArgs{}, .inputs = PresetArgs{.observer = "static_minmax"}},
    {.name = "FP8_DYNAMIC",
     .weights = PresetArgs{.strategy = Strategy::kChannel},
     .inputs = PresetArgs{.strategy = Strategy::kToken, .is_dynamic = true}},
    {.name = "FP8_BLOCK",
     .weights = PresetArgs{.strategy = Strategy::kBlock, .block_side = 128},
     .inputs = PresetArgs{.strategy = Strategy::kGroup, .is_dynamic = true, .group_size = 128}},
    {.name = "UNQUANTIZED"},
    {.name = "W4AFP8", .outside = "INT4 weights"},
    {.name = "NVFP4", .outside = kNvfp4},
    {.name = "NVFP4A16", .outside = kNvfp4},
    {.name = "MXFP4", .outside = kMxfp4},
    {.name = "MXFP4A16", .outside = kMxfp4},
    {.name = "MXFP8", .outside = kMxfp8},
    {.name = "MXFP8A16", .outside = kMxfp8},
    {.name = "W8A8", .outside = "INT8 weights and inputs"},
    {.name = "INT8", .outside = "INT8 weights and inputs"},
    {.name = "W4A16_ASYM", .outside = "INT4 weights"},
    {.name = "W2A4", .outside = kInt},
    {.name = "W2A8", .outside = kInt},
    {.name = "W2A16", .outside = kInt},
    {.name = "W3A4", .outside = kInt},
    {.name = "W3A8", .outside = kInt},
    {.name = "W3A16", .outside = kInt},
    {.name = "W4A4", .outside = kInt},
    {.name = "W4A8", .outside = kInt},
    {.name = "W4A16", .outside = kInt},
    {.name = "W5A8", .outside = kInt},
    {.name = "W5A16", .outside = kInt},
    {.name = "W6A8", .outside = kInt},
    {.name = "W6A16", .outside = kInt},
    {.name = "W7A8", .outside = kInt},
    {.name = "W7A16", .outside = kInt},
    {.name = "W8A16", .outside = kInt},
};

std::optional<QuantArgs> args_of(const std::optional<PresetArgs>& preset) {
  if (!preset) return std::nullopt;
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = preset->strategy;
  args.dynamic = preset->is_dynamic;
  if (preset->group_size > 0) args.group_size = preset->group_size;
  if (preset->block_side > 0)
    args.block_structure = std::vector<int64_t>{preset->block_side, preset->block_side};
  if (!preset->observer.empty()) args.observer = preset->observer;
  return args;
}

}  // namespace

QuantScheme read_preset(const YamlNode& name, const std::string& path) {
  std::string upper = name.text;
  std::ranges::transform(upper, upper.begin(), [](char c) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  std::vector<std::string> names;
  for (const PresetRow& row : kPresets) {
    const bool is_performed = row.outside.empty();
    if (row.name == upper && is_performed)
      return {.targets = {},
              .weights = args_of(row.weights),
              .input_activations = args_of(row.inputs),
              .format = {}};
    if (is_performed) names.emplace_back(row.name);
    if (row.name == upper)
      fail_at(name, path, ": found ", describe(name), " (", row.outside,
              "), which is outside FP8; performed are ", join(names, ", "));
  }
  fail_at(name, path, ": unknown scheme ", describe(name), did_you_mean(upper, names),
          "; performed are ", join(names, ", "));
}

}  // namespace kvcal
