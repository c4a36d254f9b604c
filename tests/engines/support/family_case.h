#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engines/support/engine_case.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/folders.h"

namespace kvcal::test {

inline Json engine_fixture(const std::string& name) {
  return parse_json(read_text(tests_folder() / "fixtures/engines" / name));
}

/// The checkpoints that engines were asked about, as reference/engines_table.py writes them.
inline const Json& recorded_checkpoints() {
  static const Json all = engine_fixture("families.json");
  return all;
}

/// A family's config.json in these checkpoints.
inline Json recorded_config(const std::string& family) {
  const Json& row = recorded_checkpoints().at("families").at(family);
  const fs::path folder = tests_folder() / "fixtures/models" / row.value("model", family);
  Json config = parse_json(read_text(folder / "config.json"), {.has_python_constants = true});
  config.update(row.at("config"));
  return config;
}

/// Gives a checkpoint the configuration of a family's form.
inline void add_configuration(EngineCase& subject, const Json& form) {
  const Json& configs = recorded_checkpoints().at("configs");
  if (!form[0].is_null()) subject.quantize(configs.at(form[0].get<size_t>()));
  if (!form[1].is_null()) subject.write("hf_quant_config.json", configs.at(form[1].get<size_t>()));
}

/// Adds the tensor that tells the prefix of a checkpoint's names, of which name is one.
inline void add_embedding(EngineCase& subject, const std::string& name) {
  const ModelConfig config = parse_model_config(subject.config());
  std::string longest;
  for (const NamePrefix& prefix : name_prefixes(config))
    if (name.starts_with(prefix.backbone) && prefix.backbone.size() >= longest.size())
      longest = prefix.backbone;
  for (const TensorRow& row : config.architecture->model_tensors)
    if (row.role == Role::kEmbedding) subject.add(longest + std::string(row.name), 1.0f);
}

/// Whether the report says what makes the cache FP8.
inline bool tells_switch(const VerifyReport& report) {
  return std::ranges::any_of(report.findings, [](const Finding& finding) {
    return finding.remedy.starts_with("start it with ");
  });
}

}  // namespace kvcal::test
