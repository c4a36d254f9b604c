#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/model_dir.h"
#include "core/number.h"
#include "family/architecture.h"
#include "stored/read_model_config.h"
#include "stored/weights.h"
#include "support/backend_list.h"
#include "support/folders.h"

namespace kvcal::test {

inline fs::path model_fixture(const std::string& name) {
  return tests_folder() / "fixtures" / "models" / name;
}

/// A fixture with a draft layer, made by make_drafts.py.
inline std::string draft_fixture(const std::string& name) {
  return (tests_folder() / "fixtures" / "drafts" / name).string();
}

/// A checkpoint's configuration with its draft layer, where it has one.
inline ModelConfig config_with_draft(const ModelDir& model_dir) {
  SilentDiagnostics silent;
  ModelConfig config = read_model_config(model_dir);
  find_draft_layer(model_dir, config, silent);
  return config;
}

/// The names of tests/fixtures/models, made by make_fixtures.py.
inline std::vector<std::string> model_fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tests_folder() / "fixtures" / "models"))
    if (fs::exists(entry.path() / "expected.json"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// A fixture opened on one backend with what transformers computed from it.
struct ModelFixture {
  /// place: a fixture's name, or a folder of the same form. family: of a model_type that is not
  /// known.
  explicit ModelFixture(const fs::path& place, const std::string& backend_name = "cpu",
                        int threads = 2, const FamilyChoice& family = {})
      : ModelFixture(place, backend_name, threads,
                     [&](const ModelDir& dir) { return read_model_config(dir, family); }) {}
  /// With the configuration that config_of(model_dir) gives.
  ModelFixture(const fs::path& place, const std::string& backend_name, int threads,
               const std::function<ModelConfig(const ModelDir&)>& config_of)
      : folder(place.has_parent_path() ? place : model_fixture(place.string())),
        model_dir(folder),
        config(config_of(model_dir)),
        weights(model_dir, config),
        backend(make_backend(backend_name, threads)),
        expected(parse_json(read_text(folder / "expected.json"))),
        ids(expected.value("ids", std::vector<TokenId>())) {}

  fs::path folder;
  ModelDir model_dir;
  ModelConfig config;
  Weights weights;
  std::unique_ptr<Backend> backend;
  Json expected;
  std::vector<TokenId> ids;
};

/// The logits [tokens, vocab] that transformers computed in float32.
inline std::vector<float> read_expected_logits(const fs::path& folder) {
  const SafetensorsFile file(folder / "expected.safetensors");
  const TensorView* logits = file.find("logits");
  KVCAL_CHECK(logits);
  const auto values = logits->as<float>();
  return {values.begin(), values.end()};
}

/// |a - b| / |b|
inline double relative_error(double a, double b) {
  return std::fabs(a - b) / std::max(std::fabs(b), 1e-30);
}

}  // namespace kvcal::test
