#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "forward/decoder.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

namespace kvcal::test {

inline fs::path fp8_fixture(const std::string& kind) {
  return tests_folder() / "fixtures" / "fp8" / kind;
}

/// A checkpoint as generate opens it.
struct Checkpoint {
  explicit Checkpoint(const fs::path& folder)
      : model_dir(folder),
        config(read_model_config(model_dir)),
        quantization(read_checkpoint_quantization(model_dir, config)),
        weights(model_dir, config, &quantization) {}

  /// [tokens, vocab], through the cache its scales ask for; in steps of step_tokens.
  std::vector<float> logits(const std::vector<TokenId>& ids, const std::string& backend_name,
                            ComputeType type, size_t step_tokens) const {
    const auto backend = make_backend(backend_name, 2);
    Decoder decoder(config, weights, *backend, type);
    const auto scales = read_checkpoint_scales(model_dir, config);
    KvCache cache = decoder.make_cache(scales ? KvDType::kFp8E4m3 : KvDType::kFloat32,
                                       scales ? *scales : std::vector<LayerKvScales>{},
                                       static_cast<int64_t>(ids.size()));
    std::vector<float> all;
    for (size_t at = 0; at < ids.size(); at += step_tokens) {
      const size_t count = std::min(step_tokens, ids.size() - at);
      const std::span step = std::span(ids).subspan(at, count);
      const auto some = count == 1 ? decoder.step(step, cache) : step_all(decoder, step, cache);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  ModelDir model_dir;
  ModelConfig config;
  CheckpointQuantization quantization;
  Weights weights;
};

/// Mean over tokens of KL(expected || logits), in nats.
inline double mean_kl(const std::vector<float>& logits, const std::vector<float>& expected,
                      size_t vocab) {
  REQUIRE(logits.size() == expected.size());
  const auto log_sum = [&](const float* row) {
    double sum = 0.0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]));
    return std::log(sum);
  };
  double total = 0.0;
  for (size_t at = 0; at < logits.size(); at += vocab) {
    const float *p = &expected[at], *q = &logits[at];
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    for (size_t i = 0; i < vocab; ++i)
      total += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
  }
  return total / static_cast<double>(logits.size() / vocab);
}

struct Expected {
  explicit Expected(const std::string& kind)
      : json(parse_json(read_text(fp8_fixture(kind) / "expected.json"))),
        ids(json.at("ids").get<std::vector<TokenId>>()),
        logits(read_expected_logits(fp8_fixture(kind))) {}
  double moved() const { return json.at("moved").get<double>(); }
  size_t vocab() const { return logits.size() / ids.size(); }

  Json json;
  std::vector<TokenId> ids;
  std::vector<float> logits;
};

/// A copy of a fixture whose config and tensors change.
template <class ChangeConfig, class ChangeTensor>
void copy_changed(const std::string& kind, const fs::path& folder,
                  const ChangeConfig& change_config, const ChangeTensor& change) {
  Json config = parse_json(read_text(fp8_fixture(kind) / "config.json"));
  change_config(config);
  write_file(folder / "config.json", config.dump());
  const SafetensorsFile file(fp8_fixture(kind) / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const TensorView& view : file.tensors()) {
    Tensor tensor{std::string(view.name), view.dtype, view.shape,
                  std::vector<std::byte>(view.bytes.begin(), view.bytes.end())};
    if (change(tensor)) tensors.push_back(std::move(tensor));
  }
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(folder / "model.safetensors", std::move(sources), {});
}

inline const auto kSameConfig = [](Json&) {};
inline const auto kSameTensor = [](Tensor&) { return true; };

template <class ChangeConfig, class ChangeTensor>
std::string error_of(const std::string& kind, const ChangeConfig& change_config,
                     const ChangeTensor& change) {
  const ScratchFolder folder;
  copy_changed(kind, folder.path(), change_config, change);
  return message_of([&] { Checkpoint checkpoint(folder.path()); });
}

/// Its logits are those of the fixture that it was made of.
inline void check_same_logits(const fs::path& folder, const std::string& kind) {
  const Expected expected(kind);
  const Checkpoint checkpoint(folder);
  CHECK(!checkpoint.quantization.linears.empty());
  const auto logits = checkpoint.logits(expected.ids, "cpu", ComputeType::kFloat32, 64);
  CHECK(mean_kl(logits, expected.logits, expected.vocab()) <= 1e-4);
}

}  // namespace kvcal::test
