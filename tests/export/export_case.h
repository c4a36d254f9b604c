#pragma once

#include <string>

#include "export/writer.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal::test {

inline const fs::path kExportFixtures = tests_folder() / "fixtures" / "export";

inline fs::path export_source(const std::string& name) {
  return kExportFixtures / "source" / name;
}

/// A case of tests/fixtures/export/cases.json (reference/export_expected.py).
inline const Json& export_case(const std::string& name) {
  static const Json cases = parse_json(read_text(kExportFixtures / "cases.json"));
  return cases.at(name);
}

inline std::vector<Scale> scales_of(const Json& values) {
  std::vector<Scale> scales;
  for (const Json& value : values) scales.push_back({value.get<float>()});
  return scales;
}

inline Calibration calibration_of(const Json& test_case) {
  const Json& args = test_case.at("args");
  Calibration calibration;
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.type = QuantType::kFloat;
  calibration.kv_args.strategy =
      args.at("strategy") == "attn_head" ? Strategy::kAttnHead : Strategy::kTensor;
  calibration.kv_args.observer = optional_string(args, "observer");
  if (optional_string(test_case, "kv_format") == "e4m3fnuz")
    calibration.kv_format = fp8::Format::kE4m3Fnuz;
  for (const Json& layer : test_case.at("layers")) {
    AttentionCalibration attention;
    attention.layer = layer.at("layer").get<int64_t>();
    attention.module = layer.at("module").get<std::string>();
    attention.ignored = layer.at("ignored").get<bool>();
    if (attention.ignored) {
      calibration.plan.ignore.push_back(attention.module);
    } else {
      attention.k.scales = scales_of(layer.at("k"));
      attention.v.scales = scales_of(layer.at("v"));
    }
    calibration.layers.push_back(std::move(attention));
  }
  calibration.num_hidden_layers = static_cast<int64_t>(calibration.layers.size());
  return calibration;
}

/// Scales of their own for every module of a checkpoint that is attention by its parts: what has a
/// projection of K, or of Q, K and V in one.
inline Calibration calibration_of_attention(const ModelDir& model) {
  Calibration calibration;
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.type = QuantType::kFloat;
  calibration.kv_args.strategy = Strategy::kTensor;
  calibration.num_hidden_layers = required_int(model.config(), "num_hidden_layers");
  std::map<int64_t, std::string> modules;
  for (const std::string& name : model.tensor_names())
    for (const char* part :
         {".k_proj.weight", ".qkv_proj.weight", ".query_key_value.weight", ".kv_b_proj.weight"})
      if (name.ends_with(part)) {
        const size_t number = name.find("layers.") == std::string::npos ? name.find(".h.") + 3
                                                                        : name.find("layers.") + 7;
        const int64_t layer = std::stoll(name.substr(number));
        if (layer < calibration.num_hidden_layers)
          modules[layer] = name.substr(0, name.size() - std::string(part).size());
      }
  for (const auto& [layer, module] : modules) {
    AttentionCalibration attention;
    attention.layer = layer;
    attention.module = module;
    attention.k.scales = {{static_cast<float>(2 * layer + 1) / 32.0f}};
    attention.v.scales = {{static_cast<float>(2 * layer + 2) / 32.0f}};
    calibration.layers.push_back(attention);
  }
  return calibration;
}

/// A recipe that asks for what the case did; its text is what recipe.yaml is made of.
inline Recipe recipe_of(const Calibration& calibration) {
  Recipe recipe;
  Modifier& modifier = recipe.modifiers.emplace_back();
  modifier.kv_cache_scheme = calibration.kv_args;
  modifier.targets = {"Linear"};
  modifier.ignore = {"lm_head"};
  return recipe;
}

/// What a writer of format makes of input, checked first: file → content.
inline std::map<std::string, std::string> written(const std::string& format,
                                                  const ExportInput& input) {
  const ScratchFolder scratch;
  const auto writer = kWriters.at(format).make();
  writer->check(input);
  writer->write(input, scratch.path());
  auto files = contents_of(scratch.path());
  // The source's recipe comes along, which the real packages leave behind.
  if (const fs::path recipe = input.model.path() / "recipe.yaml"; fs::exists(recipe))
    std::erase_if(files, [&](const auto& file) {
      return file.first.ends_with("recipe.yaml") && file.second == read_text(recipe);
    });
  return files;
}

/// Files are those of the case's expected folder, byte for byte.
inline void check_files(const std::map<std::string, std::string>& files, const std::string& name) {
  const auto expected = contents_of(kExportFixtures / "expected" / name);
  INFO("case " << name);
  for (const auto& [file, content] : expected) {
    INFO("file " << file);
    REQUIRE(files.contains(file));
    CHECK((files.at(file) == content));
  }
  CHECK(files.size() == expected.size());
}

/// What a writer of format makes of each case is the case's expected folder.
inline void check_cases(const std::string& format, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const ModelDir model(export_source(export_case(name).at("source").get<std::string>()));
    const Calibration calibration = calibration_of(export_case(name));
    const Recipe recipe = recipe_of(calibration);
    check_files(written(format, {.model = model, .calibration = calibration, .recipe = &recipe}),
                name);
  }
}

/// All but those that want FP8 weights.
inline std::vector<std::string> formats_of_16_bits() {
  std::vector<std::string> formats = kWriters.names();
  std::erase(formats, "fp8");
  return formats;
}

/// The message with which a writer of format refuses input.
inline std::string refusal(const std::string& format, const ExportInput& input) {
  return message_of([&] { kWriters.at(format).make()->check(input); });
}

}  // namespace kvcal::test
