#include "export/layer_scales.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <span>

#include "quant/weight_scales.h"

namespace kvcal {
namespace {

/// Name of a module around its layer's number: "model.layers.", 3, ".self_attn".
struct NumberedName {
  std::string_view before, after;
  int64_t number = 0;
};

std::optional<NumberedName> numbered(std::string_view name) {
  // The last numeric part is the layer: multimodal names have others before it.
  for (size_t end = name.size(); end > 0;) {
    const size_t dot = name.rfind('.', end - 1);
    const size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
    const std::string_view part = name.substr(begin, end - begin);
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && stop == part.data() + part.size() && !part.empty())
      return NumberedName{name.substr(0, begin), name.substr(end), number};
    end = begin == 0 ? 0 : begin - 1;
  }
  return std::nullopt;
}

/// Module of pattern's kind that a tensor belongs to, with its number: "model.layers.7.self_attn"
/// for "model.layers.7.self_attn.k_proj.weight".
std::optional<std::pair<std::string, int64_t>> sibling_module(std::string_view tensor,
                                                              const NumberedName& pattern) {
  if (!tensor.starts_with(pattern.before)) return std::nullopt;
  const char* const first = tensor.data() + pattern.before.size();
  const char* const last = tensor.data() + tensor.size();
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(first, last, number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view rest(stop, static_cast<size_t>(last - stop));
  if (!rest.starts_with(pattern.after) || !rest.substr(pattern.after.size()).starts_with('.'))
    return std::nullopt;
  return std::pair(
      std::string(tensor.substr(0, tensor.size() - rest.size() + pattern.after.size())), number);
}

std::span<const std::string> names_under(const std::vector<std::string>& sorted_names,
                                         const std::string& module) {
  const std::string prefix = module + ".";
  const auto begin = std::lower_bound(sorted_names.begin(), sorted_names.end(), prefix);
  const auto end = std::find_if(begin, sorted_names.end(),
                                [&](const std::string& name) { return !name.starts_with(prefix); });
  return {begin, end};
}

}  // namespace

Scale largest_of(const std::vector<Scale>& scales) {
  return *std::ranges::max_element(scales, {}, &Scale::value);
}

std::string module_of_side(std::string scales_at, char letter) {
  const size_t at = scales_at.find("{}");
  if (at != std::string::npos) scales_at.replace(at, 2, 1, letter);
  return scales_at;
}

std::span<const AttentionCalibration> layers_of_model(const Calibration& calibration) {
  const auto end = std::ranges::find_if(calibration.layers, [&](const auto& layer) {
    return layer.layer >= calibration.num_hidden_layers;
  });
  return {calibration.layers.begin(), end};
}

Scale shared_scale(const AttentionCalibration& layer) {
  return {std::max(largest_of(layer.k.scales).value, largest_of(layer.v.scales).value)};
}

bool has_head_scales(const Calibration& calibration) {
  return std::any_of(calibration.layers.begin(), calibration.layers.end(),
                     [](const AttentionCalibration& layer) { return layer.k.scales.size() > 1; });
}

bool has_query_scales(const Calibration& calibration) {
  return std::ranges::any_of(calibration.layers, [](const AttentionCalibration& layer) {
    return layer.q.has_value() && !layer.ignored;
  });
}

std::vector<std::string> ignored_modules(const Calibration& calibration) {
  std::vector<std::string> names;
  for (const AttentionCalibration& layer : calibration.layers)
    if (layer.ignored) names.push_back(layer.module);
  return names;
}

const TensorView& first_tensor_of(const ModelDir& model, const std::string& module) {
  const std::vector<std::string> names = model.tensor_names();
  const auto it = std::lower_bound(names.begin(), names.end(), module + ".");
  if (it == names.end() || !it->starts_with(module + "."))
    fail(model.path().string(), ": has no tensor of module ", module);
  return model.tensor(*it);
}

DType module_dtype(const ModelDir& model, const std::string& module) {
  const TensorView& first = first_tensor_of(model, module);
  if (!is_float(first.dtype)) fail(first.name, " is ", first.dtype, ", expected F16, BF16 or F32");
  return first.dtype;
}

DType run_dtype(const ModelDir& model, const std::string& module) {
  const TensorView& first = first_tensor_of(model, module);
  if (is_float(first.dtype)) return first.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
  // For FP8 weights, config.json has the dtype, at the top level or for the text model.
  for (const Json* config : {&model.config(), find_field(model.config(), "text_config")})
    for (const char* key : {"dtype", "torch_dtype"}) {
      const Json* name = config && config->is_object() ? find_field(*config, key) : nullptr;
      if (name && name->is_string()) return *name == "bfloat16" ? DType::kBF16 : DType::kF16;
    }
  return DType::kBF16;
}

void check_survives(std::string_view tensor, Scale scale, DType dtype, std::string_view where) {
  const float rounded = rounded_to(dtype, scale.value);
  if (!std::isfinite(rounded) || rounded <= 0.0f)
    fail(tensor, ": scale ", scale.value, " becomes ", rounded, " in ", where);
}

Tensor scale_tensor(std::string name, Shape shape, const std::vector<Scale>& values, DType dtype) {
  KVCAL_CHECK(element_count(shape) == values.size());
  Tensor tensor{std::move(name), dtype, std::move(shape), {}};
  const auto size = static_cast<size_t>(bits_of_dtype(dtype) / 8);
  for (const Scale scale : values) {
    const uint32_t bits = bits_in(dtype, scale.value);
    const auto bytes = std::as_bytes(std::span(&bits, 1)).first(size);
    tensor.bytes.insert(tensor.bytes.end(), bytes.begin(), bytes.end());
  }
  KVCAL_CHECK(tensor.bytes.size() == byte_count(tensor.shape, dtype));
  return tensor;
}

void check_covers_model(const ModelDir& model, const Calibration& calibration) {
  const std::vector<std::string> names = model.tensor_names();
  const auto layers = static_cast<int64_t>(calibration.num_hidden_layers);
  std::set<std::string, std::less<>> calibrated;
  std::set<std::pair<std::string_view, std::string_view>> patterns;
  std::set<std::string, std::less<>> parts;  // of calibrated modules: "k_proj.weight"
  for (const AttentionCalibration& layer : calibration.layers) {
    if (names_under(names, layer.module).empty())
      fail(model.path().string(), ": has no tensor of the calibrated module ", layer.module);
    calibrated.insert(layer.module);
    for (const std::string& name : names_under(names, layer.module))
      parts.insert(name.substr(layer.module.size() + 1));
    // Of several multi-token prediction layers, engines run the first.
    if (layer.layer >= layers) continue;
    if (const auto parts = numbered(layer.module)) patterns.emplace(parts->before, parts->after);
  }
  for (const auto& [before, after] : patterns)
    for (const std::string& name : names) {
      const auto sibling = sibling_module(name, {.before = before, .after = after});
      // Layers from num_hidden_layers on serve other purposes (multi-token prediction), and modules
      // with other parts are no attention (hybrids give all mixers one name).
      if (sibling && parts.contains(name.substr(sibling->first.size() + 1)) &&
          !calibrated.contains(sibling->first) && sibling->second < layers)
        fail(sibling->first, " is in the checkpoint and was not calibrated");
    }
}

void keep_quantization(const KeptQuantization& kept, FormatParts& parts) {
  if (!kept.config.is_null()) parts.config["quantization_config"] = kept.config;
  if (!kept.modelopt_file.is_null())
    parts.files.emplace(kModelOptFileName, dump_json(kept.modelopt_file, 4));
}

void check_is_unquantized(const ModelDir& model) {
  in_context((model.path() / "config.json").string(), [&] {
    const auto check = [](const Json& config) {
      for (const std::string_view key : {"quantization_config", "compression_config"})
        if (const Json* found = find_field(config, key)) {
          const auto method =
              found->is_object() ? optional_string(*found, "quant_method") : std::nullopt;
          fail("the checkpoint is quantized already: ", key, " with quant_method ",
               method ? "'" + *method + "'" : "missing", ", expected a 16-bit checkpoint",
               method.value_or("") == "fp8" ? " (--format fp8 keeps FP8 weights)" : "");
        }
    };
    check(model.config());
    if (const Json* text_config = find_field(model.config(), "text_config")) check(*text_config);
  });
}

}  // namespace kvcal
