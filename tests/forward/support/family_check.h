#pragma once

// What every family's test checks of its fixtures: transformers is the judge (make_fixtures.py).

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "family/expected_tensors.h"
#include "forward/layer_observers.h"
#include "support/model_fixture.h"

namespace kvcal::test {

constexpr double kFloat32Tolerance = 1e-4;
constexpr double kBFloat16Tolerance = 2e-2;

/// Logits after every token, [tokens, vocab].
std::vector<float> all_logits(ModelFixture& fixture, ComputeType type);
/// Largest difference, relative to the largest of expected.
double distance(const std::vector<float>& logits, const std::vector<float>& expected);
/// Root mean square of the difference, relative to that of expected.
double rms_distance(const std::vector<float>& logits, const std::vector<float>& expected);

/// rms_distance of each token's logits, smallest first.
std::vector<double> token_distances(const std::vector<float>& logits,
                                    const std::vector<float>& expected, size_t vocab_size);

/// One pass over the layers: K, V and Q of each head, and the input of each Linear.
class Extremes {
 public:
  /// all_experts: experts' inputs are those of all tokens.
  Extremes(ModelFixture& fixture, ComputeType type, bool all_experts = false);
  /// layers: a list of {"k_head_amax": [..], "v_head_amax": [..]}.
  void check_kv(const Json& layers, double tolerance) const;
  /// layers: lists of [min, max] of each head, null for a layer without attention.
  void check_queries(const Json& layers, double tolerance) const;
  /// expected: amax by the name of the weight on disk; of experts in one tensor "<name>.<expert>".
  void check_linear_inputs(const Json& expected) const;

 private:
  void fold(const LinearInput& input);
  /// What the pass collected of a layer's inputs is what the callback was shown.
  void check_collected(int64_t layer, const std::vector<LinearObservation>& seen) const;
  std::optional<double> find_linear(const std::string& name) const;
  /// Of a Linear outside of the layers.
  std::optional<double> find_model_linear(const std::string& name) const;

  ModelFixture& fixture_;
  std::vector<LayerObservation> kv_;
  std::map<std::tuple<int64_t, Role, int64_t>, float> inputs_;
  double head_amax_ = 0.0;  ///< of lm_head's input
};

/// Of every fixture whose text model is of the family, of which there must be one: logits, K, V and
/// Linear inputs in float32 on every backend, in bfloat16, and greedy text; and that each variation
/// fixture.json names moves the logits as far as it does in transformers.
void check_family(std::string_view family);

}  // namespace kvcal::test
