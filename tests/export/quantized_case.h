#pragma once

#include <algorithm>

#include "export/export_case.h"
#include "support/folders.h"

namespace kvcal::test {

inline fs::path model_fixture(const std::string& name) {
  return tests_folder() / "fixtures" / "models" / name;
}

/// A case of tests/fixtures/export/quantized.json (reference/export_w8a8.py).
inline const Json& quantized_case(const std::string& name) {
  static const Json cases = parse_json(read_text(kExportFixtures / "quantized.json"));
  return cases.at(name);
}

inline QuantArgs args_of(const Json& json) {
  static const std::map<std::string, Strategy> kStrategies{
      {"tensor", Strategy::kTensor}, {"channel", Strategy::kChannel},
      {"block", Strategy::kBlock},   {"token", Strategy::kToken},
      {"group", Strategy::kGroup},   {"attn_head", Strategy::kAttnHead}};
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = kStrategies.at(json.at("strategy").get<std::string>());
  args.group_size = optional_int(json, "group_size");
  if (!json.at("block_structure").is_null())
    args.block_structure = json.at("block_structure").get<std::vector<int64_t>>();
  args.dynamic = json.at("dynamic").get<bool>();
  args.observer = optional_string(json, "observer");
  args.observer_kwargs = json.at("observer_kwargs");
  return args;
}

inline std::optional<QuantArgs> optional_args(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(args_of(json));
}

/// Where a module comes in the order of a plan: embedding, layers, lm_head.
inline int place_of(const std::string& module) {
  if (module.find("embed_tokens") != std::string::npos) return 0;
  return module.find("layers.") != std::string::npos ? 1 : 2;
}

inline int64_t layer_of(const std::string& module) {
  const size_t at = module.find("layers.");
  return at == std::string::npos ? -1 : std::stoll(module.substr(at + 7));
}

/// Everything a writer needs, as a run that made the case's checkpoint would have it: the plan from
/// quantization_config and from which modules got a weight_scale.
struct QuantizedParts {
  explicit QuantizedParts(const std::string& name)
      : model(model_fixture(quantized_case(name).at("model").get<std::string>())),
        recipe(parse_recipe(quantized_case(name).at("recipe").get<std::string>())) {
    const Json& test_case = quantized_case(name);
    const Json& config = test_case.at("quantization_config");
    add_groups(config.at("config_groups"));
    for (const Json& tensor : test_case.at("tensors")) add_module(tensor[0].get<std::string>());
    std::ranges::stable_sort(plan().linears, {}, [](const PlannedLinear& linear) {
      return std::pair(place_of(linear.module), linear.layer);
    });
    plan().ignore = config.at("ignore").get<std::vector<std::string>>();
    if (model.config().at("tie_word_embeddings").get<bool>()) {
      plan().tied_embedding = "model.embed_tokens";
      plan().tied_head = "lm_head";
      plan().unties_embedding = !test_case.at("tie_word_embeddings").get<bool>();
    }
    add_head_tied_alike();
    calibration.num_hidden_layers = model.config().at("num_hidden_layers").get<int64_t>();
    if (!config.at("kv_cache_scheme").is_null()) add_attention(config, test_case.at("values"));
    for (const PlannedLinear& linear : plan().linears)
      if (const Json* scale = find_field(test_case.at("values"), linear.module + ".input_scale"))
        calibration.linears.push_back({.module = linear.module,
                                       .input_amax = {scale->at(0).get<float>() * 448.0f},
                                       .input_scale = {scale->at(0).get<float>()},
                                       .input_tokens = 62});
  }

  QuantPlan& plan() { return calibration.plan; }
  ExportInput input(ThreadPool* pool = nullptr) const {
    return {.model = model, .calibration = calibration, .recipe = &recipe, .pool = pool};
  }

  ModelDir model;
  Calibration calibration;
  Recipe recipe;

 private:
  void add_groups(const Json& groups) {
    for (const auto& [name, group] : groups.items()) {
      QuantScheme scheme{.targets = group.at("targets").get<std::vector<std::string>>(),
                         .weights = optional_args(group.at("weights")),
                         .input_activations = optional_args(group.at("input_activations")),
                         .format = std::nullopt};
      if (scheme.weights)
        plan().groups.push_back(scheme);
      else
        query_args_ = scheme.input_activations;
    }
  }

  void add_module(const std::string& tensor) {
    constexpr std::string_view kSuffix = ".weight_scale";
    if (!tensor.ends_with(kSuffix)) return;
    const std::string module = tensor.substr(0, tensor.size() - kSuffix.size());
    const bool is_embedding = place_of(module) == 0;
    const std::string class_name = is_embedding ? "Embedding" : "Linear";
    const auto& groups = plan().groups;
    const auto group = std::ranges::find_if(groups, [&](const QuantScheme& scheme) {
      return std::ranges::any_of(scheme.targets, [&](const std::string& target) {
        return matches_target(target, module, class_name);
      });
    });
    KVCAL_CHECK(group != groups.end());
    plan().linears.push_back({.module = module,
                              .layer = layer_of(module),
                              .group = static_cast<size_t>(group - groups.begin()),
                              .is_embedding = is_embedding});
  }

  /// llm-compressor's file has no scales of a head that stays tied.
  void add_head_tied_alike() {
    if (plan().tied_head.empty() || plan().unties_embedding) return;
    if (plan().linears.front().module == plan().tied_embedding)
      plan().linears.push_back({.module = plan().tied_head, .group = plan().linears.front().group});
  }

  void add_attention(const Json& config, const Json& values) {
    calibration.kv_args = args_of(config.at("kv_cache_scheme"));
    plan().attention_class = "LlamaAttention";
    for (int64_t layer = 0; layer < calibration.num_hidden_layers; ++layer) {
      const std::string module = "model.layers." + std::to_string(layer) + ".self_attn";
      plan().attention.push_back(
          {.module = module, .layer = layer, .kv = calibration.kv_args, .q = query_args_});
      AttentionCalibration attention{.layer = layer, .module = module, .k = {}, .v = {}};
      attention.k.scales = scales_of(values.at(module + ".k_scale"));
      attention.v.scales = scales_of(values.at(module + ".v_scale"));
      if (query_args_) attention.q.emplace().scales = query_scales(layer);
      calibration.layers.push_back(std::move(attention));
    }
  }

  /// Any will do: llm-compressor writes what the memory held.
  std::vector<Scale> query_scales(int64_t layer) const {
    std::vector<Scale> scales;
    for (int head = 0; head < model.config().at("num_attention_heads").get<int>(); ++head)
      scales.push_back({0.01f * static_cast<float>(head + 1 + layer)});
    return scales;
  }

  std::optional<QuantArgs> query_args_;
};

}  // namespace kvcal::test
