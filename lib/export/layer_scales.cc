#include "export/layer_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "core/text.h"
#include "export/checkpoint_copy.h"
#include "export/planned_weights.h"
#include "quant/weight_scales.h"

namespace kvcal {
namespace {

/// Name of a module around its layer's number: "model.layers." and ".self_attn". The last numeric
/// part is the layer: multimodal names have others before it. nullopt: there is none.
std::optional<std::pair<std::string, std::string>> around_number(const std::string& name) {
  for (size_t end = name.size(); end > 0;) {
    const size_t dot = name.rfind('.', end - 1);
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end)
      return std::pair(name.substr(0, begin), name.substr(end));
    end = begin == 0 ? 0 : begin - 1;
  }
  return std::nullopt;
}

/// The names of a module's tensors.
std::span<const std::string> names_under(const std::vector<std::string>& sorted_names,
                                         const std::string& module) {
  const std::string prefix = module + ".";
  const auto begin = std::lower_bound(sorted_names.begin(), sorted_names.end(), prefix);
  const auto end = std::find_if(begin, sorted_names.end(),
                                [&](const std::string& name) { return !name.starts_with(prefix); });
  return {begin, end};
}

/// The first words below a module: "k_proj" of "k_proj.weight".
std::set<std::string> parts_of(const std::string& module, std::span<const std::string> names) {
  std::set<std::string> parts;
  for (std::string name : names) {
    name.erase(0, module.size() + 1);
    parts.insert(name.substr(0, name.find('.')));
  }
  return parts;
}

/// Dtype of an attention module's first tensor, by name, which llm-compressor gives the scales.
/// Throws Error where it is not F16, BF16 or F32.
DType module_dtype(const ModelDir& model, const std::string& module) {
  const TensorView& first = first_tensor_of(model, module);
  if (!is_float(first.dtype)) fail(first.name, " is ", first.dtype, ", expected F16, BF16 or F32");
  return first.dtype;
}

constexpr std::string_view kScale = "_scale", kZeroPoint = "_zero_point";

/// Q, K or V of a layer.
struct Side {
  char letter;
  const KvTensorCalibration* calibration;
  bool is_per_head;

  std::string name(const AttentionCalibration& layer, std::string_view suffix) const {
    const std::string module =
        layer.scales_at.empty() ? layer.module : replaced(layer.scales_at, "{}", {&letter, 1});
    return module + "." + letter + std::string(suffix);
  }
};

/// The sides of a layer that have scales; none for an ignored layer.
std::vector<Side> sides_of(const Calibration& calibration, const AttentionCalibration& layer) {
  if (layer.ignored) return {};
  const auto is_per_head = [](const QuantArgs& args) {
    return resolved_strategy(args) == Strategy::kAttnHead;
  };
  const bool per_head = is_per_head(calibration.kv_args);
  std::vector<Side> sides{{'k', &layer.k, per_head}, {'v', &layer.v, per_head}};
  if (!layer.q) return sides;
  const auto& attention = calibration.plan.attention;
  const auto planned = std::ranges::find(attention, layer.module, &PlannedAttention::module);
  sides.push_back(
      {'q', &*layer.q, planned != attention.end() && planned->q && is_per_head(*planned->q)});
  return sides;
}

/// "3, 7"
std::string ignored_layers(const Calibration& calibration, std::string_view separator) {
  std::vector<std::string> layers;
  for (const AttentionCalibration& layer : calibration.layers)
    if (layer.ignored) layers.push_back(std::to_string(layer.layer));
  return join(layers, separator);
}

}  // namespace

Scale largest_of(const std::vector<Scale>& scales) {
  return *std::ranges::max_element(scales, {}, &Scale::value);
}

std::span<const AttentionCalibration> layers_of_model(const Calibration& calibration) {
  const auto end = std::ranges::find_if(
      calibration.layers, [&](const auto& layer) { return calibration.is_draft(layer); });
  return {calibration.layers.begin(), end};
}

Scale shared_scale(const AttentionCalibration& layer) {
  return {std::max(largest_of(layer.k.scales).value, largest_of(layer.v.scales).value)};
}

bool has_head_scales(const Calibration& calibration) {
  return std::ranges::any_of(calibration.layers, [](const AttentionCalibration& layer) {
    return layer.k.scales.size() > 1;
  });
}

std::vector<Scale> spread_scales(const std::vector<Scale>& scales, int64_t wanted) {
  const int64_t count = std::ssize(scales);
  KVCAL_CHECK(count > 0 && wanted % count == 0);
  std::vector<Scale> all;
  for (int64_t i = 0; i < wanted; ++i)
    all.push_back(scales[static_cast<size_t>(i * count / wanted)]);
  return all;
}

std::string_view merged_name(const Calibration& calibration) {
  return resolved_strategy(calibration.kv_args) == Strategy::kChannel ? "channels" : "heads";
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
  const auto own = names_under(names, module);
  if (own.empty()) fail(model.path().string(), ": has no tensor of module ", module);
  return model.tensor(own.front());
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
  std::set<std::string> calibrated;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> patterns;  // to shared parts
  for (const AttentionCalibration& layer : calibration.layers) {
    const auto own = names_under(names, layer.module);
    if (own.empty())
      fail(model.path().string(), ": has no tensor of the calibrated module ", layer.module);
    calibrated.insert(layer.module);
    // Of several multi-token prediction layers, engines run the first.
    if (calibration.is_draft(layer)) continue;
    const auto pattern = around_number(layer.module);
    if (!pattern) continue;
    const std::set<std::string> parts = parts_of(layer.module, own);
    const auto [shared, is_first] = patterns.emplace(*pattern, parts);
    if (!is_first) std::erase_if(shared->second, [&](auto& part) { return !parts.contains(part); });
  }
  // Layers from num_hidden_layers on serve other purposes (multi-token prediction), and a module
  // without a part that all calibrated ones have keeps no such cache (hybrids give their linear
  // attention the same name).
  for (const auto& [pattern, shared] : patterns) {
    std::set<std::string> missing;  // the first by the names of tensors is told
    for (int64_t layer = 0; layer < calibration.num_hidden_layers; ++layer) {
      const std::string module = pattern.first + std::to_string(layer) + pattern.second;
      if (calibrated.contains(module)) continue;
      const auto own = names_under(names, module);
      if (!own.empty() && std::ranges::includes(parts_of(module, own), shared))
        missing.insert(module + ".");
    }
    if (!missing.empty())
      fail(missing.begin()->substr(0, missing.begin()->size() - 1),
           " is in the checkpoint and was not calibrated");
  }
}

void keep_quantization(const SourceQuantization& kept, FormatParts& parts) {
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

std::vector<Scale> tied_over_ranks(const std::vector<Scale>& scales, int64_t num_ranks) {
  const auto heads = static_cast<int64_t>(scales.size());
  if (num_ranks <= 1 || heads <= 1) return scales;
  if (heads % num_ranks != 0 && num_ranks % heads != 0)
    fail(counted(heads, "head"), " cannot be divided over ", counted(num_ranks, "rank"));
  const int64_t heads_of_rank = std::max<int64_t>(1, heads / num_ranks);
  std::vector<Scale> tied = scales;
  for (auto first = tied.begin(); first != tied.end(); first += heads_of_rank) {
    const auto largest = *std::ranges::max_element(first, first + heads_of_rank, {}, &Scale::value);
    std::fill(first, first + heads_of_rank, largest);
  }
  return tied;
}

std::vector<std::string> attention_tensor_names(const Calibration& calibration) {
  std::vector<std::string> names;
  for (const AttentionCalibration& layer : calibration.layers)
    for (const Side& side : sides_of(calibration, layer)) {
      names.push_back(side.name(layer, kScale));
      if (layer.q) names.push_back(side.name(layer, kZeroPoint));
    }
  return names;
}

std::vector<Tensor> attention_tensors(const ExportInput& input) {
  std::vector<Tensor> tensors;
  for (const AttentionCalibration& layer : input.calibration.layers) {
    if (layer.ignored) continue;
    const DType dtype =
        input.scale_in_model_dtype ? module_dtype(input.model, layer.module) : DType::kF32;
    for (const Side& side : sides_of(input.calibration, layer)) {
      const std::vector<Scale> scales = tied_over_ranks(side.calibration->scales, input.tp_size);
      const Shape shape =
          side.is_per_head ? Shape{static_cast<int64_t>(scales.size()), 1, 1} : Shape{1};
      tensors.push_back(scale_tensor(side.name(layer, kScale), shape, scales, dtype));
      // E4M3's zero has only zero bits.
      if (layer.q)
        tensors.push_back({side.name(layer, kZeroPoint), DType::kF8E4M3, shape,
                           std::vector<std::byte>(byte_count(shape, DType::kF8E4M3))});
    }
  }
  return tensors;
}

void check_attention_scales_fit(const ExportInput& input) {
  for (const AttentionCalibration& layer : input.calibration.layers) {
    if (layer.ignored) continue;
    const DType dtype = module_dtype(input.model, layer.module);
    const float smallest = dtype == DType::kF16 ? 0x1p-14f : std::numeric_limits<float>::min();
    for (const Side& side : sides_of(input.calibration, layer))
      for (const Scale scale : side.calibration->scales) {
        const float rounded = rounded_to(dtype, scale.value);
        if (!std::isfinite(rounded) || rounded < smallest)
          fail(side.name(layer, kScale), ": scale ", scale.value, " is out of the normal range of ",
               dtype, "; write scales as float32 (--scale-dtype float32)");
      }
  }
}

std::optional<std::string> ignored_layers_note(const Calibration& calibration) {
  const std::string layers = ignored_layers(calibration, " ");
  if (layers.empty()) return std::nullopt;
  if (calibration.kv_format.is_int8())
    return "ignored layers have no scale; which engines keep 16 bits there is not known";
  return "ignored layers have no scale, and an FP8 cache would use 1.0 there; start vLLM with "
         "--kv-cache-dtype-skip-layers " +
         layers;
}

std::optional<std::string> vllm_arguments(const Calibration& calibration) {
  const std::string layers = ignored_layers(calibration, ", ");
  // vLLM has no INT8 cache with such scales.
  if (layers.empty() || calibration.kv_format.is_int8()) return std::nullopt;
  return "# For: vllm serve FOLDER --config FOLDER/vllm.yaml\n"
         "kv-cache-dtype: fp8\n"
         "kv-cache-dtype-skip-layers: [" +
         layers + "]\n";
}

void ScalarWriter::check(const ExportInput& input) const {
  const Calibration& calibration = input.calibration;
  check_calibration(calibration);
  check_holds(calibration, format_);
  if (!calibration.kv_format.is_int8() && calibration.kv_format != fp8::Format::kE4m3Fn)
    fail(weights_.title,
         "'s form holds scales of E4M3FN, which engines double where codes are E4M3FNUZ; the "
         "calibration has another format (convert takes --fp8-dialect fn)");
  if (input.scale_in_model_dtype)
    fail(weights_.title, "'s scales are float32; scale dtype 'model' is not for them");
  check_kept(input, format_, weights_.title);
  check_covers_model(input.model, calibration);
  for (const AttentionCalibration& layer : calibration.layers)
    if (!layer.ignored) check_layer(input, layer);
  if (calibration.plan.quantizes_weights()) check_weights(input, weights_);
}

/// vLLM holds these scales in the 16-bit dtype that it runs the model in, and runs none of these
/// methods in float32. Source: vLLM 0.32, `KVCacheScaleParameter`, whose tensor gets torch's
/// default dtype, and `get_supported_act_dtypes`.
void ScalarWriter::check_layer(const ExportInput& input, const AttentionCalibration& layer) const {
  std::vector<std::string> others;
  // Scales with other names would take precedence, or be an error.
  for (const KvScaleNames& other : kv_scale_formats())
    for (const std::string_view name : {other.k, other.v})
      others.push_back(layer.module + std::string(name));
  check_tensors_are_new(input.model, others);
  const DType dtype = run_dtype(input.model, layer.module);
  const auto check = [&](std::string_view name, const KvTensorCalibration& side) {
    check_survives(layer.module + std::string(name), largest_of(side.scales), dtype,
                   std::string(name_of(dtype)) + ", in which vLLM holds it");
  };
  check(names(input).k, layer.k);
  check(names(input).v, layer.v);
  if (const auto q = names(input).q; !q.empty() && layer.q) check(q, *layer.q);
}

FormatParts ScalarWriter::parts(const ExportInput& input) const {
  const KvScaleNames& names = this->names(input);
  FormatParts parts{.weights = &weights_};
  const auto add = [&](const std::string& name, Scale scale) {
    parts.tensors.push_back(scale_tensor(name, scale_shape(), {scale}, DType::kF32));
  };
  for (const AttentionCalibration& layer : input.calibration.layers) {
    if (layer.ignored) continue;
    const auto name = [&](char letter, std::string_view usual) {
      return layer.scales_at.empty()
                 ? layer.module + std::string(usual)
                 : replaced(layer.scales_at, "{}", {&letter, 1}) + "." + letter + "_scale";
    };
    add(name('k', names.k), largest_of(layer.k.scales));
    add(name('v', names.v), largest_of(layer.v.scales));
    if (names.q.empty() || !layer.q || !layer.scales_at.empty()) continue;
    add(layer.module + std::string(names.q), largest_of(layer.q->scales));
    if (layer.module.ends_with(".self_attn"))
      add(layer.module + std::string(kProbScale),
          scale_from(Amax{1.0f}, input.calibration.kv_format));
  }
  if (auto arguments = vllm_arguments(input.calibration))
    parts.files.emplace(kVllmArgumentsName, *std::move(arguments));
  return parts;
}

WrittenScales ScalarWriter::held(const AttentionCalibration& layer, int64_t) const {
  return {{largest_of(layer.k.scales)}, {largest_of(layer.v.scales)}};
}

std::vector<std::string> ScalarWriter::notes(const ExportInput& input) const {
  const Calibration& calibration = input.calibration;
  const std::string form = std::string(weights_.title) + "'s form has ";
  const bool has_queries = !names(input).q.empty();
  std::vector<std::string> notes = weight_notes(input);
  if (has_queries && !calibration.layers.empty())
    notes.insert(notes.begin(), "quant_method " + std::string(format_) +
                                    " does not turn the FP8 cache on by itself; start vLLM with "
                                    "--kv-cache-dtype fp8");
  if (has_head_scales(calibration))
    notes.push_back(form + "one scale for K and one for V of a layer: the largest of all " +
                    std::string(merged_name(calibration)) + " was taken");
  if (has_query_scales(calibration) && !has_queries)
    notes.push_back(form + "no scales of queries: they are not written");
  if (const auto note = ignored_layers_note(calibration)) notes.push_back(*note);
  // Tested: its mapper adds ".attn" to the names, and DeepSeek's loader adds it again.
  if (calibration.is_latent && !calibration.layers.empty()) notes.emplace_back(kLatentNote);
  return notes;
}

}  // namespace kvcal
