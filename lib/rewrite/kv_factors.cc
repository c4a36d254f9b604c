#include "rewrite/kv_factors.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace kvcal {
namespace {

bool has_row(const ModelConfig& config, int64_t layer, Role role) {
  const LayerConfig& own = config.layer(layer);
  return std::ranges::any_of(config.architecture->layer_tensors, [&](const TensorRow& row) {
    return row.role == role && config.holds(row.conditions, &own);
  });
}

bool is_plain(const ModelConfig& config, Role role) {
  const std::vector<Role>& plain = config.architecture->plain_norms;
  return std::ranges::find(plain, role) != plain.end();
}

std::string family_of(const ModelConfig& config) {
  return "family " + std::string(config.architecture->name);
}

/// Reasons that hold for K and V.
std::optional<std::string> reason_against_any(const ModelConfig& config) {
  if (config.architecture->has_latent_attention)
    return family_of(config) + " caches a latent (MLA), from which K and V of all heads are made";
  if (config.qkv_limit > 0.0f)
    return family_of(config) + " cuts Q, K and V to a limit, clip_qkv, which factors would move";
  return std::nullopt;
}

/// factors [kv_heads, width], for each of the heads that read them: [heads, width].
std::vector<float> repeated(const std::vector<float>& factors, const AttentionSizes& sizes) {
  const int64_t width = static_cast<int64_t>(factors.size()) / sizes.kv_heads;
  const int64_t group = sizes.heads / sizes.kv_heads;
  std::vector<float> all;
  for (int64_t head = 0; head < sizes.heads; ++head) {
    const auto begin = factors.begin() + head / group * width;
    all.insert(all.end(), begin, begin + width);
  }
  return all;
}

std::vector<float> inverse(std::vector<float> factors) {
  for (float& factor : factors) factor = 1.0f / factor;
  return factors;
}

/// Factors of the roles of one layer; of K and Q where their weights stand: in the norm's, or in
/// the projection's.
class RoleFactors {
 public:
  RoleFactors(const ModelConfig& config, int64_t layer, const KvFactors& factors)
      : config_(config), layer_(layer), own_(factors[static_cast<size_t>(layer)]) {
    read_ = &factors[static_cast<size_t>(config.layer(layer).cache_layer)];
  }

  /// Of the outputs of a role; empty: 1.
  std::vector<float> of(Role role) const {
    switch (role) {
      case Role::kKey:
      case Role::kKeyBias:
        return has_row(config_, layer_, Role::kKeyNorm) ? std::vector<float>() : own_.k;
      case Role::kKeyNorm:
      case Role::kKeyNormBias:
        return own_.k;
      case Role::kQuery:
      case Role::kQueryBias:
        return has_row(config_, layer_, Role::kQueryNorm) ? std::vector<float>() : queries();
      case Role::kQueryNorm:
      case Role::kQueryNormBias:
        return queries();
      case Role::kValue:
      case Role::kValueBias:
        return own_.v;
      default:
        return {};
    }
  }

  /// Of the inputs of the projection behind attention.
  std::vector<float> attended() const {
    if (read_->v.empty()) return {};
    return inverse(repeated(read_->v, config_.attention(layer_)));
  }

 private:
  std::vector<float> queries() const {
    if (read_->k.empty()) return {};
    return inverse(repeated(read_->k, config_.attention(layer_)));
  }

  const ModelConfig& config_;
  int64_t layer_;
  const LayerFactors& own_;
  const LayerFactors* read_ = nullptr;  ///< of the layer whose cache this one reads
};

bool is_transposed(const ExpectedTensor& tensor) {
  return tensor.row->layout == Layout::kInOut;
}

/// Values of the roles of a fused tensor, in its outputs; fill elsewhere. Empty where all are.
std::vector<float> fused(const ExpectedTensor& tensor, const ModelConfig& config, float fill,
                         const std::function<std::vector<float>(Role)>& values_of) {
  const int64_t rows = tensor.shape[is_transposed(tensor) ? 1 : 0];
  std::vector<float> all;
  for (const Role role : row_of(tensor.row->role).holds) {
    const std::vector<float> values = values_of(role);
    if (values.empty()) continue;
    all.resize(static_cast<size_t>(rows), fill);
    auto from = values.begin();
    for (const auto& [begin, count] :
         row_ranges(role, tensor.row->role, rows, config, tensor.layer)) {
      std::copy(from, from + count, all.begin() + begin);
      from += count;
    }
  }
  return all;
}

bool is_norm(Role role) {
  return role == Role::kKeyNorm || role == Role::kQueryNorm || role == Role::kKeyNormBias ||
         role == Role::kQueryNormBias;
}

/// Values of one tensor of a norm: of one head's own, or of the first head where all share it.
std::vector<float> of_norm(const std::vector<float>& values, const ExpectedTensor& tensor) {
  if (values.empty()) return {};
  const auto count = static_cast<std::ptrdiff_t>(element_count(tensor.shape));
  const auto begin = values.begin() + tensor.index * count;
  return {begin, begin + count};
}

}  // namespace

std::optional<std::string> reason_against_key_factors(const ModelConfig& config) {
  if (auto reason = reason_against_any(config)) return reason;
  if (is_plain(config, Role::kKeyNorm) || is_plain(config, Role::kQueryNorm))
    return family_of(config) + " norms Q and K without weights that could hold factors";
  return std::nullopt;
}

std::optional<std::string> reason_against_value_factors(const ModelConfig& config) {
  if (auto reason = reason_against_any(config)) return reason;
  if (config.architecture->norms_values)
    return family_of(config) + " norms V without weights that could hold factors";
  if (std::ranges::any_of(config.attention_layers(),
                          [&](int64_t layer) { return !config.layer(layer).has_value_projection; }))
    return family_of(config) + " has layers whose V is the projection of K";
  return std::nullopt;
}

std::optional<std::string> reason_against_key_offset(const ModelConfig& config) {
  if (auto reason = reason_against_any(config)) return reason;
  if (config.has_qk_norm || is_plain(config, Role::kKeyNorm) ||
      std::ranges::any_of(config.attention_layers(),
                          [&](int64_t layer) { return has_row(config, layer, Role::kKeyNorm); }))
    return family_of(config) + " norms K behind its bias, which would undo it";
  return std::nullopt;
}

KeyUnits HeadUnits::all() const {
  KeyUnits units = turning;
  units.insert(units.end(), fixed.begin(), fixed.end());
  return units;
}

HeadUnits key_units(const ModelConfig& config, int64_t layer) {
  const LayerConfig& own = config.layer(layer);
  const int64_t dim = own.attention.head_dim;
  const int64_t turned =
      own.rope == kNoRope ? 0 : config.ropes[static_cast<size_t>(own.rope)].rotary_dim;
  HeadUnits units;
  for (int64_t i = 0; i < turned / 2; ++i)
    units.turning.push_back(config.rope_is_interleaved ? std::vector<int64_t>{2 * i, 2 * i + 1}
                                                       : std::vector<int64_t>{i, i + turned / 2});
  for (int64_t channel = turned; channel < dim; ++channel) units.fixed.push_back({channel});
  return units;
}

bool shares_key_factors(const ModelConfig& config, int64_t layer) {
  return config.architecture->qk_norm == QkNorm::kPerHead &&
         (has_row(config, layer, Role::kKeyNorm) || has_row(config, layer, Role::kQueryNorm));
}

float TensorChange::apply(float value, uint64_t i) const {
  if (!offsets.empty()) value += offsets[i];
  if (factors.empty()) return value;
  const float factor = factors[i / elements_a_factor % factors.size()];
  // Without a change a value keeps its bits. In double all but the last step is exact.
  return !adds_one || factor == 1.0f
             ? value * factor
             : static_cast<float>((1.0 + double{value}) * double{factor} - 1.0);
}

double TensorChange::error(float value, uint64_t i) const {
  if (!adds_one || factors.empty()) return 0.0;
  const double wanted =
      (1.0 + double{value}) * double{factors[i / elements_a_factor % factors.size()]};
  return wanted == 0.0 ? 0.0 : std::fabs((1.0 + double{apply(value, i)}) / wanted - 1.0);
}

TensorChange change_of(const ExpectedTensor& tensor, const ModelConfig& config,
                       const KvFactors& factors) {
  if (tensor.layer == kNoLayer || !config.has_attention(tensor.layer)) return {};
  const RoleFactors roles(config, tensor.layer, factors);
  const std::vector<float>& offset = factors[static_cast<size_t>(tensor.layer)].key_offset;
  const Role role = tensor.row->role;
  const auto offset_of = [&](Role part) {
    return part == Role::kKeyBias ? offset : std::vector<float>();
  };
  if (is_norm(role))
    return {.factors = of_norm(roles.of(role), tensor),
            .adds_one = row_of(role).tensor_class == TensorClass::kNorm &&
                        config.architecture->norm_adds_one};
  const bool is_fused = !row_of(role).holds.empty();
  TensorChange change;
  change.factors = role == Role::kOutput ? roles.attended()
                   : is_fused
                       ? fused(tensor, config, 1.0f, [&](Role part) { return roles.of(part); })
                       : roles.of(role);
  change.offsets = is_fused ? fused(tensor, config, 0.0f, offset_of) : offset_of(role);
  // Factors are those of the outputs, but for the projection behind attention.
  if (tensor.shape.rank() > 1 && is_transposed(tensor) == (role == Role::kOutput))
    change.elements_a_factor = static_cast<uint64_t>(tensor.shape[1]);
  return change;
}

}  // namespace kvcal
