#include "forward/packed_layer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "family/config_reader.h"
#include "forward/norm_weights.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// The number below which a share of a normal distribution lies; share: in (0, 1).
double normal_quantile(double share) {
  double below = -40.0, above = 40.0;
  while (true) {
    const double middle = 0.5 * (below + above);
    if (middle <= below || middle >= above) return middle;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < share ? below : above) = middle;
  }
}

using Roles = std::vector<Role>;

/// Packs one layer for the backend whose turn it is, reading each tensor once.
class Packer {
 public:
  Packer(const Weights& weights, const ModelConfig& config, int64_t layer, SharedLinears& linears,
         ComputeType type)
      : weights_(weights),
        config_(config),
        layer_(layer),
        linears_(linears),
        backend_(linears.backend()),
        type_(type) {}

  /// A norm whose output is multiplied.
  PackedNorm norm(Role role, float multiplier = 1.0f) const {
    if (!weights_.has(layer_, role)) {
      if (multiplier != 1.0f)
        fail("layer ", layer_, " has no ", row_of(role).name,
             ", which the multiplier of its inputs needs");
      return plain_norm(role);
    }
    return {.weight = {multiplied(norm_weight(all_rows(role), config_), multiplier), backend_},
            .bias = {multiplied(all_biases({role}), multiplier), backend_}};
  }

  /// The norm that only divides, by the root of the mean square or the standard deviation, where
  /// the layer has that.
  PackedNorm plain_norm(Role role) const {
    if (std::ranges::find(config_.architecture->plain_norms, role) ==
        config_.architecture->plain_norms.end())
      return {};
    if (config_.has_norm_weights && has_row(*config_.architecture, role)) return {};
    const bool is_of_heads = role == Role::kQueryNorm || role == Role::kKeyNorm;
    if (is_of_heads && !config_.layers[static_cast<size_t>(layer_)].norms_heads) return {};
    return {.weight = ones(is_of_heads ? config_.attention(layer_).head_dim : config_.hidden_size,
                           backend_)};
  }

  /// Packs the matrices of the roles one below the other, with their biases.
  PackedLinear linear(const Roles& roles, int64_t index = 0) const {
    return linear_as(type_, roles, index);
  }

  PackedValues values(Role role) const {
    if (!weights_.has(layer_, role)) return {};
    return {as_float32(weights_.rows(layer_, role).parts), backend_};
  }

  PackedValues convolution(const Roles& roles) const {
    return pack_convolution(weights_, config_, layer_, roles, backend_);
  }

  void pack_key_value(PackedLayer& packed) const {
    packed.input_norm = norm(Role::kInputNorm, config_.attention_input_multiplier);
    if (!own().has_own_cache) return;
    if (config_.architecture->has_latent_attention) {
      packed.key_value = linear({Role::kLatent});
      packed.latent_norm = norm(Role::kLatentNorm, own().latent.latent_multiplier);
      packed.latent_key_norm = norm(Role::kLatentKeyNorm);
    } else {
      // Without a projection of its own, V is that of K.
      packed.key_value =
          linear({Role::kKey, own().has_value_projection ? Role::kValue : Role::kKey});
      packed.key_value.factors = key_factors();
      packed.key_norm = norm(Role::kKeyNorm);
      packed.convolutions.key_value = convolution({Role::kKeyConv, Role::kValueConv});
      if (config_.architecture->norms_values)
        packed.value_norm.weight = ones(own().attention.value_dim, backend_);
    }
  }

  void pack_query(PackedLayer& packed) const {
    if (config_.has_query_rank) {
      packed.query_down = linear({Role::kQueryDown});
      packed.query_down_norm = norm(Role::kQueryDownNorm, own().latent.query_multiplier);
    }
    if (own().has_indexer) packed.indexer = indexer();
    packed.query = linear({config_.has_query_rank ? Role::kQueryUp : Role::kQuery});
    packed.query_norm = norm(Role::kQueryNorm);
    if (!weights_.has(layer_, Role::kRelative)) return;
    packed.relative = linear({Role::kRelative});
    packed.relative_table = pack_relative_table(weights_, config_, layer_, backend_);
  }

  void pack_attention(PackedLayer& packed) const {
    if (config_.architecture->has_latent_attention) packed.latent_up = linear({Role::kLatentUp});
    pack_query(packed);
    packed.attended_norm = norm(Role::kAttendedNorm);
    packed.output = linear({Role::kOutput});
    packed.convolutions.attention_output = convolution({Role::kAttentionOutputConv});
    packed.sinks = values(Role::kSinks);
    packed.slopes = {config_.alibi_slopes, backend_};
    if (weights_.has(layer_, Role::kQueryGate)) packed.query_gate = linear({Role::kQueryGate});
  }

  /// The published code keeps the projection to weights in float32.
  PackedIndexer indexer() const {
    PackedIndexer packed{.query = linear({Role::kIndexerQuery}),
                         .key = linear({Role::kIndexerKey}),
                         .query_norm = norm(Role::kIndexerQueryNorm),
                         .key_norm = norm(Role::kIndexerKeyNorm),
                         .weights = {}};
    if (weights_.has(layer_, Role::kIndexerWeights))
      packed.weights = linear_as(ComputeType::kFloat32, {Role::kIndexerWeights});
    return packed;
  }

  void pack_norms(PackedLayer& packed) const {
    if (own().has_recurrence)
      packed.mixer_norm = norm(Role::kInputNorm, config_.mixer_input_multiplier);
    packed.attention_output_norm = norm(Role::kAttentionOutputNorm);
    packed.mlp_norm = norm(Role::kMlpNorm);
    packed.mlp_output_norm = norm(Role::kMlpOutputNorm);
    packed.convolutions.mlp_output = convolution({Role::kMlpOutputConv});
    packed.stream_norm = norm(Role::kStreamNorm);
  }

  PackedMlp mlp() const {
    PackedMlp packed = mlp_of({Role::kGate, Role::kUp, Role::kDown}, own().intermediate_size);
    if (weights_.has(layer_, Role::kMlpScale))
      packed.down.factors = {
          std::vector<float>(static_cast<size_t>(config_.hidden_size), number(Role::kMlpScale)),
          backend_};
    if (weights_.has(layer_, Role::kInnerNorm))
      packed.inner_norm = {norm_weight(all_rows(Role::kInnerNorm), config_), backend_};
    if (own().activation_sparsity > 0.0)
      packed.deviations = static_cast<float>(normal_quantile(own().activation_sparsity));
    return packed;
  }

  PackedLaurel laurel() const {
    if (config_.laurel_rank == 0) return {};
    return {.down = linear({Role::kLaurelDown}),
            .up = linear({Role::kLaurelUp}),
            .norm = norm(Role::kLaurelNorm)};
  }

  PackedExperts experts() const {
    PackedExperts packed;
    Roles router{Role::kRouter};
    packed.shared_is_gated = weights_.has(layer_, Role::kSharedExpertGate);
    if (packed.shared_is_gated) router.push_back(Role::kSharedExpertGate);
    packed.router = linear_as(ComputeType::kFloat32, router);
    packed.correction = values(Role::kRouterCorrection);
    for (int64_t i = 0; i < config_.moe.num_experts; ++i)
      packed.experts.push_back(mlp_of({Role::kExpertGate, Role::kExpertUp, Role::kExpertDown},
                                      config_.moe.intermediate_size, i));
    if (config_.has_expert_latent) {
      packed.in = linear({Role::kExpertsIn});
      packed.out = linear({Role::kExpertsOut});
    }
    if (weights_.has(layer_, Role::kRouterScale)) packed.factor = number(Role::kRouterScale);
    for (int64_t i = 0; i < config_.moe.scored_shared; ++i)
      packed.scored_shared.push_back(mlp_of({Role::kSharedGate, Role::kSharedUp, Role::kSharedDown},
                                            config_.moe.shared_intermediate_size, i));
    if (config_.has_shared_expert && config_.moe.scored_shared == 0)
      packed.shared = mlp_of({Role::kSharedGate, Role::kSharedUp, Role::kSharedDown},
                             config_.moe.shared_intermediate_size);
    // The router's input is divided by sqrt(hidden_size). Source: transformers 5.23
    // `Gemma4TextRouter`.
    if (weights_.has(layer_, Role::kRouterNorm))
      packed.router_norm.weight = {
          multiplied(norm_weight(all_rows(Role::kRouterNorm), config_),
                     1.0f / std::sqrt(static_cast<float>(config_.hidden_size))),
          backend_};
    packed.expert_scales = values(Role::kExpertScale);
    packed.sum_norm = norm(Role::kExpertsSumNorm);
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
      const LinearRows source{
          {.parts = {rows_of(weights_.at(Role::kLayerInputProjection), layer_ * size, size)}}};
      return pack_linear({&source, 1}, linears_.group(), type_);
    });
    std::vector<float> weight = norm_weight({&weights_.at(Role::kLayerInputNorm), 1}, config_);
    for (float& value : weight) value /= std::numbers::sqrt2_v<float>;
    packed.norm.weight = {std::move(weight), backend_};
    packed.gate = linear({Role::kLayerInputGate});
    packed.output = linear({Role::kLayerInputOutput});
    packed.output_norm = norm(Role::kLayerInputOutputNorm);
    return packed;
  }

  PackedDraftInput draft_input() const {
    return {.embedding_norm = norm(Role::kDraftEmbeddingNorm),
            .final_norm = pack_final_norm(weights_, config_, backend_),
            .hidden_norm = norm(Role::kDraftHiddenNorm),
            .projection = linear({Role::kDraftProjection})};
  }

  /// Source: transformers 5.23, models/gemma3n `Gemma3nTextAltUp` and `Gemma3nTextModel`.
  PackedStreams streams(LayerParts parts) const {
    PackedStreams packed;
    if (layer_ == 0) packed.projections = further_streams(Role::kStreamProjection);
    packed.router_norm.weight = {
        multiplied(as_float32(weights_.rows(layer_, Role::kStreamRouterNorm).parts),
                   1.0f / static_cast<float>(config_.hidden_size)),
        backend_};
    packed.router = numbers(Role::kStreamRouter);
    packed.prediction = numbers(Role::kStreamPrediction);
    if (parts == LayerParts::kKeyValue) return packed;
    packed.correction = numbers(Role::kStreamCorrection);
    packed.correction.bias = ones(config_.streams, backend_);
    if (config_.scales_active_stream) packed.scale = values(Role::kStreamScale);
    if (layer_ + 1 == config_.num_hidden_layers)
      packed.outputs = further_streams(Role::kStreamOutput);
    return packed;
  }

  PackedConnection connection(Role linear_role, Role scale_role, Role base_role) const {
    return {.norm = ones(config_.size_of(Dim::kStreamsWidth), backend_),
            .linear = numbers(linear_role),
            .scale = values(scale_role),
            .base = values(base_role)};
  }

  void pack_connections(PackedLayer& packed, LayerParts parts) const {
    packed.attention_connection =
        connection(Role::kAttentionConnection, Role::kAttentionConnectionScale,
                   Role::kAttentionConnectionBase);
    if (parts == LayerParts::kKeyValue) return;
    packed.mlp_connection =
        connection(Role::kMlpConnection, Role::kMlpConnectionScale, Role::kMlpConnectionBase);
  }

  /// The norm's weight and the vector behind it in one. layer: kNoLayer for those of the model.
  PackedValues sum_scores(Role norm_role, Role score_role, int64_t layer) const {
    std::vector<float> scores = norm_weight(weights_.rows(layer, norm_role).parts, config_);
    const std::vector<float> vector = as_float32(weights_.rows(layer, score_role).parts);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] *= vector[i];
    return {std::move(scores), backend_};
  }

  void pack_sum_scores(PackedLayer& packed, LayerParts parts) const {
    packed.attention_scores = sum_scores(Role::kAttentionSumNorm, Role::kAttentionSumScore, layer_);
    if (parts == LayerParts::kKeyValue) return;
    packed.mlp_scores = sum_scores(Role::kMlpSumNorm, Role::kMlpSumScore, layer_);
    if (layer_ + 1 == config_.num_hidden_layers)
      packed.final_scores = sum_scores(Role::kFinalSumNorm, Role::kFinalSumScore, kNoLayer);
  }

  float scalar() const {
    return weights_.has(layer_, Role::kLayerScalar) ? number(Role::kLayerScalar) : 1.0f;
  }

 private:
  const LayerConfig& own() const { return config_.layer(layer_); }

  float number(Role role) const { return as_float32(weights_.rows(layer_, role).parts).at(0); }

  /// limit: of the activated gate, in the layer; 0: none.
  ActivationFunction activation(bool is_gated, float limit) const {
    ActivationFunction function{.kind = config_.activation};
    if (is_gated) {
      function.limit = limit > 0.0f ? limit : config_.activation_limit;
      function.limits_activated = limit > 0.0f;
      function.adds_one = config_.activation_adds_one;
      function.gate_multiplier = config_.gate_multiplier;
    }
    if (function.kind == Activation::kSitu) {
      function.beta = config_.activation_beta;
      function.up_softcap = is_gated ? config_.up_softcap : 0.0f;
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

  /// roles: of gate, up and down.
  PackedMlp mlp_of(const Roles& roles, int64_t width, int64_t index = 0) const {
    const bool gated = weights_.has(layer_, roles[0]);
    const bool is_expert = roles[1] == Role::kExpertUp;
    return {.in = linear({roles.begin() + (gated ? 0 : 1), roles.begin() + 2}, index),
            .down = linear({roles[2]}, index),
            .gated = gated,
            .width = width,
            .activation = activation(gated, is_expert ? own().expert_limit : own().mlp_limit),
            .inner_norm = {},
            .deviations = {}};
  }

  /// A small matrix, as float32 numbers.
  PackedLinear numbers(Role role) const {
    return linears_.take([&] {
      const LinearRows rows{weights_.rows(layer_, role), weights_.quantization(layer_, role)};
      auto packed = pack_linear({&rows, 1}, linears_.group(), ComputeType::kFloat32);
      weights_.drop(layer_, role, 0);
      return packed;
    });
  }

  /// The model's matrices of all further streams.
  std::vector<PackedLinear> further_streams(Role role) const {
    std::vector<PackedLinear> packed;
    for (int64_t i = 0; i + 1 < config_.streams; ++i)
      packed.push_back(linears_.take([&] {
        const LinearRows rows =
            linear_rows(weights_, weights_.quantization(role, i), kNoLayer, role, i);
        return pack_linear({&rows, 1}, linears_.group(), type_);
      }));
    weights_.drop(role);
    return packed;
  }

  PackedLinear linear_as(ComputeType type, const Roles& roles, int64_t index = 0) const {
    PackedLinear packed = linears_.take([&] { return matrices(type, roles, index); });
    packed.bias = {all_biases(roles, index), backend_};
    return packed;
  }

  std::vector<PackedLinear> matrices(ComputeType type, const Roles& roles, int64_t index) const {
    std::vector<LinearRows> rows;
    for (const Role role : roles)
      rows.push_back(
          linear_rows(weights_, weights_.quantization(layer_, role, index), layer_, role, index));
    std::vector<PackedLinear> packed = pack_linear(rows, linears_.group(), type);
    // Mapped pages count as memory, so only one matrix's are held.
    for (const Role role : roles) weights_.drop(layer_, role, index);
    return packed;
  }

  /// Concatenated biases of the roles; empty where the layer has none.
  std::vector<float> all_biases(const Roles& roles, int64_t index = 0) const {
    std::vector<float> all;
    for (const Role role : roles) {
      const std::optional<Role> bias = bias_of(role);
      if (!bias || !weights_.has(layer_, *bias)) continue;
      const std::vector<float> part = as_float32(weights_.rows(layer_, *bias, index).parts);
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
  SharedLinears& linears_;
  Backend& backend_;
  ComputeType type_;
};

/// Packs the layer for the backend whose turn it is.
PackedLayer pack_in_turn(const Weights& weights, const ModelConfig& config, int64_t layer,
                         LayerParts parts, SharedLinears& linears, ComputeType type) {
  const Packer packer(weights, config, layer, linears, type);
  const LayerConfig& variations = config.layers[static_cast<size_t>(layer)];
  PackedLayer packed;
  if (variations.is_draft) {
    packed.draft = packer.draft_input();
    packer.pack_key_value(packed);
    if (parts == LayerParts::kAll) packer.pack_query(packed);
    return packed;
  }
  if (config.connections.exist())
    packer.pack_connections(packed, parts);
  else if (config.attends_residuals)
    packer.pack_sum_scores(packed, parts);
  else if (config.mixes_streams())
    pack_gated_streams(weights, config, layer, parts, linears, type, packed);
  else if (config.streams > 1)
    packed.streams = packer.streams(parts);
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
  SharedLinears linears(group);
  std::vector<PackedLayer> packed;
  for (size_t turn = 0; turn < group.backends().size(); ++turn) {
    linears.begin(turn);
    packed.push_back(pack_in_turn(weights, config, layer, parts, linears, type));
  }
  return packed;
}

}  // namespace kvcal
