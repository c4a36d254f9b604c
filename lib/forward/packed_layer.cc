#include "forward/packed_layer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "stored/weight_rows.h"

namespace kvcal {
namespace {

std::vector<float> norm_weight(std::span<const TensorView> parts, const ModelConfig& config) {
  std::vector<float> values = as_float32(parts);
  if (config.architecture->norm_adds_one)
    for (float& value : values) value += 1.0f;
  return values;
}

/// A norm that only divides, by the root of the mean square or the standard deviation.
PackedNorm ones(int64_t width, Backend& backend) {
  PackedNorm packed;
  packed.weight = {std::vector<float>(static_cast<size_t>(width), 1.0f), backend};
  return packed;
}

std::vector<float> multiplied(std::vector<float> values, float multiplier) {
  for (float& value : values) value *= multiplier;
  return values;
}

/// The number below which a share of a normal distribution lies; share: in (0, 1).
double normal_quantile(double share) {
  double below = -40.0, above = 40.0;
  while (true) {
    const double middle = 0.5 * (below + above);
    if (middle <= below || middle >= above) return middle;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < share ? below : above) = middle;
  }
}

/// Packs one layer for the backend whose turn it is, reading each tensor once.
class Packer {
 public:
  Packer(const Weights& weights, const ModelConfig& config, int64_t layer, LinearTurns& linears,
         ComputeType type)
      : weights_(weights),
        config_(config),
        layer_(layer),
        linears_(linears),
        backend_(linears.backend()),
        type_(type) {}

  PackedNorm norm(Role role, std::initializer_list<Role> bias = {}) const {
    return norm_times(1.0f, role, bias);
  }

  /// A norm whose output is multiplied.
  PackedNorm norm_times(float multiplier, Role role, std::initializer_list<Role> bias) const {
    PackedNorm packed;
    if (!weights_.has(layer_, role)) {
      if (multiplier != 1.0f)
        fail("layer ", layer_, " has no ", row_of(role).name,
             ", which the multiplier of its inputs needs");
      return plain_norm(role);
    }
    packed.weight = {multiplied(norm_weight(all_rows(role), config_), multiplier), backend_};
    packed.bias = {multiplied(all_biases(bias), multiplier), backend_};
    return packed;
  }

  /// The norm without weights, where the layer has that.
  PackedNorm plain_norm(Role role) const {
    if (std::ranges::find(config_.architecture->plain_norms, role) ==
        config_.architecture->plain_norms.end())
      return {};
    const bool is_of_heads = role == Role::kQueryNorm || role == Role::kKeyNorm;
    if (is_of_heads && !config_.layers[static_cast<size_t>(layer_)].norms_heads) return {};
    return ones(is_of_heads ? config_.attention(layer_).head_dim : config_.hidden_size, backend_);
  }

  /// Packs the matrices of the roles one below the other, with their biases.
  PackedLinear linear(std::initializer_list<Role> roles, std::initializer_list<Role> bias,
                      int64_t index = 0) const {
    return linear_as(type_, roles, bias, index);
  }

  PackedValues values(Role role) const {
    if (!weights_.has(layer_, role)) return {};
    return {as_float32(weights_.rows(layer_, role).parts), backend_};
  }

  void pack_key_value(PackedLayer& packed) const {
    packed.input_norm =
        norm_times(config_.attention_input_multiplier, Role::kInputNorm, {Role::kInputNormBias});
    if (!own().has_own_cache) return;
    if (config_.architecture->has_latent_attention) {
      packed.key_value = linear({Role::kLatent}, {Role::kLatentBias});
      packed.latent_norm = norm(Role::kLatentNorm);
    } else {
      // Without a projection of its own, V is that of K.
      const bool has_value = own().has_value_projection;
      packed.key_value = linear({Role::kKey, has_value ? Role::kValue : Role::kKey},
                                {Role::kKeyBias, has_value ? Role::kValueBias : Role::kKeyBias});
      packed.key_value.factors = key_factors();
      packed.key_norm = norm(Role::kKeyNorm, {Role::kKeyNormBias});
      if (config_.architecture->norms_values)
        packed.value_norm.weight = {
            std::vector<float>(static_cast<size_t>(own().attention.value_dim), 1.0f), backend_};
    }
  }

  void pack_query(PackedLayer& packed) const {
    if (config_.has_query_rank) {
      packed.query_down = linear({Role::kQueryDown}, {Role::kQueryDownBias});
      packed.query_down_norm = norm(Role::kQueryDownNorm);
    }
    if (own().has_indexer) packed.indexer = indexer();
    packed.query = config_.has_query_rank ? linear({Role::kQueryUp}, {})
                                          : linear({Role::kQuery}, {Role::kQueryBias});
    packed.query_norm = norm(Role::kQueryNorm, {Role::kQueryNormBias});
  }

  void pack_attention(PackedLayer& packed) const {
    if (config_.architecture->has_latent_attention)
      packed.latent_up = linear({Role::kLatentUp}, {});
    pack_query(packed);
    packed.output = linear({Role::kOutput}, {Role::kOutputBias});
    packed.sinks = values(Role::kSinks);
    if (weights_.has(layer_, Role::kQueryGate)) packed.query_gate = linear({Role::kQueryGate}, {});
  }

  /// The published code keeps the projection to weights in float32.
  PackedIndexer indexer() const {
    return {.query = linear({Role::kIndexerQuery}, {}),
            .key = linear({Role::kIndexerKey}, {}),
            .key_norm = norm(Role::kIndexerKeyNorm, {Role::kIndexerKeyNormBias}),
            .weights = linear_as(ComputeType::kFloat32, {Role::kIndexerWeights}, {}, 0)};
  }

  void pack_norms(PackedLayer& packed) const {
    if (own().has_recurrence)
      packed.mixer_norm =
          norm_times(config_.mixer_input_multiplier, Role::kInputNorm, {Role::kInputNormBias});
    packed.attention_output_norm = norm(Role::kAttentionOutputNorm);
    packed.mlp_norm = norm(Role::kMlpNorm, {Role::kMlpNormBias});
    packed.mlp_output_norm = norm(Role::kMlpOutputNorm);
  }

  PackedMlp mlp() const {
    PackedMlp packed;
    packed.gated = weights_.has(layer_, Role::kGate);
    packed.in = packed.gated ? linear({Role::kGate, Role::kUp}, {Role::kGateBias, Role::kUpBias})
                             : linear({Role::kUp}, {Role::kUpBias});
    packed.down = linear({Role::kDown}, {Role::kDownBias});
    packed.width = own().intermediate_size;
    packed.activation = activation(packed.gated);
    if (own().activation_sparsity > 0.0)
      packed.deviations = static_cast<float>(normal_quantile(own().activation_sparsity));
    return packed;
  }

  PackedLaurel laurel() const {
    if (config_.laurel_rank == 0) return {};
    return {.down = linear({Role::kLaurelDown}, {}),
            .up = linear({Role::kLaurelUp}, {}),
            .norm = norm(Role::kLaurelNorm)};
  }

  PackedExperts experts() const {
    PackedExperts packed;
    std::vector<Role> router{Role::kRouter};
    packed.shared_is_gated = weights_.has(layer_, Role::kSharedExpertGate);
    if (packed.shared_is_gated) router.push_back(Role::kSharedExpertGate);
    packed.router = linear_as(ComputeType::kFloat32, router, {Role::kRouterBias}, 0);
    if (weights_.has(layer_, Role::kRouterCorrection))
      packed.correction = {as_float32(weights_.rows(layer_, Role::kRouterCorrection).parts),
                           backend_};
    for (int64_t i = 0; i < config_.moe.num_experts; ++i) packed.experts.push_back(expert(i));
    if (config_.has_shared_expert) packed.shared = shared_expert();
    if (weights_.has(layer_, Role::kRouterNorm)) packed.router_norm = router_norm();
    if (weights_.has(layer_, Role::kExpertScale))
      packed.expert_scales = {as_float32(weights_.rows(layer_, Role::kExpertScale).parts),
                              backend_};
    packed.input_norm = norm(Role::kExpertNorm);
    packed.output_norm = norm(Role::kExpertOutputNorm);
    packed.mlp_output_norm = norm(Role::kMlpBesideNorm);
    return packed;
  }

  /// Source: transformers 5.23 `Gemma4TextModel.project_per_layer_inputs`.
  PackedLayerInput layer_input() const {
    PackedLayerInput packed;
    if (!weights_.has(layer_, Role::kLayerInputGate)) return packed;
    if (weights_.quantization(Role::kLayerInputProjection))
      fail("the weight of all layers' inputs is quantized, which is not read; expected 16 bits");
    packed.projection = linears_.take([&] {
      const int64_t size = config_.layer_input_size;
      const TensorView rows =
          rows_of(weights_.at(Role::kLayerInputProjection), layer_ * size, size);
      const LinearRows source{std::span(&rows, 1), {}, nullptr};
      return pack_linear(std::span(&source, 1), linears_.group(), type_);
    });
    std::vector<float> weight =
        norm_weight(std::span(&weights_.at(Role::kLayerInputNorm), 1), config_);
    for (float& value : weight) value /= std::numbers::sqrt2_v<float>;
    packed.norm.weight = {std::move(weight), backend_};
    packed.gate = linear({Role::kLayerInputGate}, {});
    packed.output = linear({Role::kLayerInputOutput}, {});
    packed.output_norm = norm(Role::kLayerInputOutputNorm);
    return packed;
  }

  PackedDraftInput draft_input() const {
    return {.embedding_norm = norm(Role::kDraftEmbeddingNorm),
            .final_norm = pack_final_norm(weights_, config_, backend_),
            .hidden_norm = norm(Role::kDraftHiddenNorm),
            .projection = linear({Role::kDraftProjection}, {})};
  }

  float scalar() const {
    return weights_.has(layer_, Role::kLayerScalar) ? number(Role::kLayerScalar) : 1.0f;
  }

 private:
  const LayerConfig& own() const { return config_.layer(layer_); }

  /// The router's input is divided by sqrt(hidden_size). Source: transformers 5.23
  /// `Gemma4TextRouter`.
  PackedNorm router_norm() const {
    std::vector<float> weight = norm_weight(all_rows(Role::kRouterNorm), config_);
    const float factor = 1.0f / std::sqrt(static_cast<float>(config_.hidden_size));
    for (float& value : weight) value *= factor;
    PackedNorm packed;
    packed.weight = {std::move(weight), backend_};
    return packed;
  }

  float number(Role role) const { return as_float32(weights_.rows(layer_, role).parts).at(0); }

  ActivationFunction activation(bool is_gated) const {
    ActivationFunction function{.kind = config_.activation};
    if (is_gated) {
      function.limit = config_.activation_limit;
      function.gate_multiplier = config_.gate_multiplier;
    }
    if (function.kind != Activation::kXielu) return function;
    const auto softplus = [](float x) {
      return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0f);
    };
    function.beta = number(Role::kActivationBeta);
    function.eps = number(Role::kActivationEps);
    function.alpha_p = softplus(number(Role::kActivationAlphaP));
    function.alpha_n = function.beta + softplus(number(Role::kActivationAlphaN));
    return function;
  }

  /// Factors of K and V together; none where K is used as it is projected.
  PackedValues key_factors() const {
    if (config_.key_multiplier == 1.0f) return {};
    const AttentionSizes& sizes = own().attention;
    std::vector<float> factors(static_cast<size_t>(sizes.key_width()), config_.key_multiplier);
    factors.resize(factors.size() + static_cast<size_t>(sizes.value_width()), 1.0f);
    return {std::move(factors), backend_};
  }

  PackedMlp expert(int64_t index) const {
    PackedMlp packed;
    packed.gated = weights_.has(layer_, Role::kExpertGate);
    packed.in = packed.gated ? linear({Role::kExpertGate, Role::kExpertUp},
                                      {Role::kExpertGateBias, Role::kExpertUpBias}, index)
                             : linear({Role::kExpertUp}, {Role::kExpertUpBias}, index);
    packed.down = linear({Role::kExpertDown}, {Role::kExpertDownBias}, index);
    packed.width = config_.moe.intermediate_size;
    packed.activation = activation(packed.gated);
    return packed;
  }

  PackedMlp shared_expert() const {
    PackedMlp packed;
    packed.gated = weights_.has(layer_, Role::kSharedGate);
    packed.in = packed.gated ? linear({Role::kSharedGate, Role::kSharedUp}, {})
                             : linear({Role::kSharedUp}, {});
    packed.down = linear({Role::kSharedDown}, {});
    packed.width = config_.moe.shared_intermediate_size;
    packed.activation = activation(packed.gated);
    return packed;
  }

  PackedLinear linear_as(ComputeType type, const std::vector<Role>& roles,
                         std::initializer_list<Role> bias, int64_t index) const {
    PackedLinear packed = linears_.take([&] { return matrices(type, roles, index); });
    packed.bias = biases(bias, index);
    return packed;
  }

  std::vector<PackedLinear> matrices(ComputeType type, const std::vector<Role>& roles,
                                     int64_t index) const {
    std::vector<WeightRows> sources;
    std::vector<LinearRows> rows;
    sources.reserve(roles.size());
    for (const Role role : roles) {
      const LinearQuantization* quantization = weights_.quantization(layer_, role, index);
      const WeightRows& source = sources.emplace_back(
          multiplies_codes(quantization) ? weights_.codes(layer_, role, index)
                                         : weights_.rows_to_pack(layer_, role, index));
      rows.push_back({source.parts, source.row_scales, quantization, source.decoded});
    }
    std::vector<PackedLinear> packed = pack_linear(rows, linears_.group(), type);
    // Mapped pages count as memory, so only one matrix's are held.
    for (const Role role : roles) weights_.drop(layer_, role, index);
    return packed;
  }

  PackedValues biases(std::initializer_list<Role> roles, int64_t index = 0) const {
    return {all_biases(roles, index), backend_};
  }

  /// Concatenated biases; empty where the layer has none.
  std::vector<float> all_biases(std::initializer_list<Role> roles, int64_t index = 0) const {
    std::vector<float> all;
    for (const Role role : roles) {
      if (!weights_.has(layer_, role)) continue;
      const std::vector<float> part = as_float32(weights_.rows(layer_, role, index).parts);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  /// One tensor, or those of all heads where each has its own.
  std::vector<TensorView> all_rows(Role role) const {
    std::vector<TensorView> parts;
    for (int64_t i = 0; i < weights_.count(layer_, role); ++i) {
      const WeightRows rows = weights_.rows(layer_, role, i);
      KVCAL_CHECK(rows.owned.empty());
      parts.insert(parts.end(), rows.parts.begin(), rows.parts.end());
    }
    return parts;
  }

  const Weights& weights_;
  const ModelConfig& config_;
  int64_t layer_;
  LinearTurns& linears_;
  Backend& backend_;
  ComputeType type_;
};

/// Packs the layer for the backend whose turn it is.
PackedLayer pack_in_turn(const Weights& weights, const ModelConfig& config, int64_t layer,
                         LayerParts parts, LinearTurns& linears, ComputeType type) {
  const Packer packer(weights, config, layer, linears, type);
  const LayerConfig& variations = config.layers[static_cast<size_t>(layer)];
  PackedLayer packed;
  if (variations.is_draft) {
    packed.draft = packer.draft_input();
    packer.pack_key_value(packed);
    if (parts == LayerParts::kAll) packer.pack_query(packed);
    return packed;
  }
  if (config.streams > 1)
    packed.streams = pack_streams(weights, config, layer, parts, linears, type);
  if (variations.has_attention) {
    packer.pack_key_value(packed);
    if (parts == LayerParts::kKeyValue) return packed;
    packer.pack_attention(packed);
  }
  packer.pack_norms(packed);
  if (variations.has_recurrence)
    packed.recurrence = pack_recurrence(weights, config, layer, linears, type);
  if (variations.is_moe) packed.moe = packer.experts();
  if (variations.has_mlp && (!variations.is_moe || config.architecture->has_mlp_beside_experts))
    packed.mlp = packer.mlp();
  packed.laurel = packer.laurel();
  packed.input = packer.layer_input();
  packed.scalar = packer.scalar();
  return packed;
}

}  // namespace

std::vector<PackedLayer> pack_layer(const Weights& weights, const ModelConfig& config,
                                    int64_t layer, LayerParts parts, PackGroup& group,
                                    ComputeType type) {
  LinearTurns linears(group);
  std::vector<PackedLayer> packed;
  for (size_t turn = 0; turn < group.backends().size(); ++turn) {
    linears.begin(turn);
    packed.push_back(pack_in_turn(weights, config, layer, parts, linears, type));
  }
  return packed;
}

PackedNorm pack_final_norm(const Weights& weights, const ModelConfig& config, Backend& backend) {
  if (!weights.has(Role::kFinalNorm)) return ones(config.hidden_size, backend);
  PackedNorm packed;
  packed.weight = {multiplied(norm_weight(std::span(&weights.at(Role::kFinalNorm), 1), config),
                              config.head_input_multiplier),
                   backend};
  if (weights.has(Role::kFinalNormBias))
    packed.bias = {multiplied(as_float32(std::span(&weights.at(Role::kFinalNormBias), 1)),
                              config.head_input_multiplier),
                   backend};
  return packed;
}

PackedLinear pack_output_embedding(const Weights& weights, PackGroup& group, ComputeType type) {
  Backend& backend = *group.backends().front();
  const Role role = weights.output_embedding();
  const LinearQuantization* quantization = weights.output_quantization();
  const WeightRows source =
      multiplies_codes(quantization) ? weights.codes(role) : weights.rows_to_pack(role);
  const LinearRows rows{source.parts, source.row_scales, quantization, source.decoded};
  PackedLinear packed = std::move(pack_linear(std::span(&rows, 1), group, type).front());
  if (weights.has(Role::kLmHeadBias))
    packed.bias = {as_float32(std::span(&weights.at(Role::kLmHeadBias), 1)), backend};
  return packed;
}

namespace {

int64_t attention_elements(const ModelConfig& config, const AttentionSizes& sizes) {
  const int64_t hidden = config.hidden_size, gates = config.architecture->has_query_gate ? 1 : 0;
  const int64_t outer = hidden * ((1 + gates) * sizes.query_width() + sizes.attended_width());
  if (!config.architecture->has_latent_attention)
    return outer + (sizes.key_width() + sizes.value_width()) * hidden;
  const IndexerConfig& indexer = config.indexer;
  return outer + config.size_of(Dim::kLatentWidth) * hidden +
         config.size_of(Dim::kLatentUpWidth) * config.latent.latent_rank +
         indexer.query_width() * config.latent.query_rank +
         (indexer.head_dim + 2 * indexer.heads) * hidden;
}

int64_t recurrence_elements(const ModelConfig& config) {
  if (config.architecture->recurrence == Mixer::kNone) return 0;
  const int64_t inner = config.recurrent.inner();
  return config.hidden_size *
             (config.size_of(Dim::kMixerInWidth) + config.size_of(Dim::kMixerGatesWidth) + inner) +
         inner * (config.size_of(Dim::kMixerStatesWidth) + config.recurrent.step_rank);
}

}  // namespace

uint64_t packed_layer_bytes(const ModelConfig& config, ComputeType type) {
  const int64_t hidden = config.hidden_size;
  const int64_t mixer = config.largest([&](const LayerConfig& layer) {
    return (layer.has_attention ? attention_elements(config, layer.attention) : 0) +
           (layer.has_recurrence ? recurrence_elements(config) : 0);
  });
  const int64_t dense = 3 * hidden * config.largest(&LayerConfig::intermediate_size);
  const MoeConfig& moe = config.moe;
  const int64_t experts =
      3 * hidden * (moe.num_experts * moe.intermediate_size + moe.shared_intermediate_size);
  const auto is_moe = [](const LayerConfig& layer) { return layer.is_moe; };
  int64_t largest = std::ranges::all_of(config.layers, is_moe) ? 0 : dense;
  if (std::ranges::any_of(config.layers, is_moe)) largest = std::max(largest, experts);
  if (config.architecture->has_mlp_beside_experts) largest = dense + experts;
  largest += hidden * (3 * config.layer_input_size + 2 * config.laurel_rank);
  // Layer 0 has the projections to the further streams, and the last one those back.
  largest += 2 * hidden * hidden * (config.streams - 1);
  return static_cast<uint64_t>(mixer + largest) * bytes_of(type);
}

}  // namespace kvcal
