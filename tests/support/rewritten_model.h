#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "forward/decoder.h"
#include "rewrite/rewritten_checkpoint.h"
#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

/// Helpers of tests that compare a rewritten checkpoint with its source.
namespace kvcal::test {

inline bool is_quantized(const fs::path& folder) {
  return ModelDir(folder).config().contains("quantization_config");
}

/// Gives a rewritten checkpoint the tokens of its source.
inline void copy_expected(const fs::path& source, const fs::path& folder) {
  fs::copy_file(source / "expected.json", folder / "expected.json",
                fs::copy_options::skip_existing);
}

/// A checkpoint with these factors, in a folder of its own.
struct RewrittenModel {
  RewrittenModel(const fs::path& source, const KvFactors& factors) {
    const ModelDir model(source);
    const ModelConfig config = read_model_config(model);
    ThreadPool pool(2);
    made = write_rewritten_checkpoint(model, config, factors, pool, folder.path());
    copy_expected(source, folder.path());
  }
  ScratchFolder folder;
  RewrittenCheckpoint made;
};

/// Logits [tokens, vocab] in float32 with a cache of this type, by default an unquantized one,
/// whose scales are 1.0 where it needs any.
inline std::vector<float> logits_of(const fs::path& folder, CacheType type = KvDType::kFloat32) {
  ModelFixture fixture(folder);
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(
      type, needs_scales(type) ? unit_scales(fixture.config) : std::vector<LayerKvScales>(),
      static_cast<int64_t>(fixture.ids.size()));
  return step_all(decoder, fixture.ids, cache);
}

/// Largest difference of logits, relative to the largest of expected.
inline double distance(const std::vector<float>& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0, worst = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(expected[i])));
    worst = std::max(worst, static_cast<double>(std::fabs(expected[i] - found[i])));
  }
  return worst / largest;
}

/// KL(expected, found) of each token in nats, ascending; logits: [tokens, vocabulary].
inline std::vector<double> kls_of(const std::vector<float>& found,
                                  const std::vector<float>& expected, size_t tokens) {
  REQUIRE(found.size() == expected.size());
  const size_t vocabulary = expected.size() / tokens;
  const auto log_sum = [&](const float* logits) {
    const double most = double{*std::max_element(logits, logits + vocabulary)};
    double sum = 0.0;
    for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - most);
    return most + std::log(sum);
  };
  std::vector<double> kls;
  for (size_t token = 0; token < tokens; ++token) {
    const float* p = expected.data() + token * vocabulary;
    const float* q = found.data() + token * vocabulary;
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    double kl = 0.0;
    for (size_t i = 0; i < vocabulary; ++i) {
      const double log_p = double{p[i]} - p_sum;
      kl += std::exp(log_p) * (log_p - (double{q[i]} - q_sum));
    }
    kls.push_back(kl);
  }
  std::ranges::sort(kls);
  return kls;
}

}  // namespace kvcal::test
