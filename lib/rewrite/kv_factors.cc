#include "rewrite/kv_factors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvcal {
namespace {

/// Whether a fused tensor of the role `fused` holds the outputs of another role.
bool holds(Role fused, Role role) {
  const std::vector<Role>& held = row_of(fused).holds;
  return std::ranges::find(held, role) != held.end();
}

/// Whether the layer has a tensor of the role, or a fused one that holds its outputs.
bool has_row(const ModelConfig& config, int64_t layer, Role role, bool or_fused = false) {
  const LayerConfig& own = config.layer(layer);
  return std::ranges::any_of(config.architecture->layer_tensors, [&](const TensorRow& row) {
    return (row.role == role || (or_fused && holds(row.role, role))) &&
           config.holds(row.conditions, &own);
  });
}

/// Layers that read the cache of this one, itself first.
std::vector<int64_t> readers_of(const ModelConfig& config, int64_t layer) {
  std::vector<int64_t> readers;
  for (const int64_t reader : config.attention_layers())
    if (config.layer(reader).cache_layer == layer) readers.push_back(reader);
  return readers;
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

/// Partners of outputs that are their own.
std::vector<int64_t> own_partners(size_t count) {
  std::vector<int64_t> partners(count);
  std::iota(partners.begin(), partners.end(), int64_t{0});
  return partners;
}

/// Change of Q's heads, or of K's, by one layer's factors and turns. heads: of Q or of K.
OutputChange key_change(const LayerFactors& made, const ModelConfig& config, int64_t layer,
                        int64_t heads, bool undoes) {
  if (made.k.empty() && made.key_turns.empty()) return {};
  const AttentionSizes& sizes = config.attention(layer);
  const int64_t group = heads / sizes.kv_heads, width = sizes.head_dim;
  const KeyUnits pairs = key_units(config, layer).turning;
  OutputChange change;
  change.factors.assign(static_cast<size_t>(heads * width), 1.0f);
  if (!made.key_turns.empty()) {
    change.shares.assign(change.factors.size(), 0.0f);
    change.partners = own_partners(change.factors.size());
  }
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t from = head / group * width, to = head * width;
    const auto factor_of = [&](int64_t channel) {
      const double factor =
          made.k.empty() ? 1.0 : double{made.k[static_cast<size_t>(from + channel)]};
      return undoes ? 1.0 / factor : factor;
    };
    for (int64_t channel = 0; channel < width; ++channel)
      change.factors[static_cast<size_t>(to + channel)] = static_cast<float>(factor_of(channel));
    if (made.key_turns.empty()) continue;
    for (size_t pair = 0; pair < pairs.size(); ++pair) {
      const int64_t first = pairs[pair][0], second = pairs[pair][1];
      const double angle = made.key_turns[static_cast<size_t>(head / group) * pairs.size() + pair];
      const auto put = [&](int64_t channel, int64_t other, double share) {
        const auto at = static_cast<size_t>(to + channel);
        change.factors[at] = static_cast<float>(factor_of(channel) * std::cos(angle));
        change.shares[at] = static_cast<float>(factor_of(channel) * share);
        change.partners[at] = to + other;
      };
      put(first, second, -std::sin(angle));
      put(second, first, std::sin(angle));
    }
  }
  return change;
}

/// Change of the outputs of a role of one layer, or of the inputs of the projection behind
/// attention; of K and Q where their weights stand: in the norm's, or in the projection's.
OutputChange change_of_role(Role role, const ModelConfig& config, int64_t layer,
                            const KvFactors& factors) {
  const AttentionSizes& sizes = config.attention(layer);
  const LayerFactors& own = factors[static_cast<size_t>(layer)];
  const LayerFactors& read = factors[static_cast<size_t>(config.layer(layer).cache_layer)];
  switch (role) {
    case Role::kKey:
    case Role::kKeyBias:
      if (has_row(config, layer, Role::kKeyNorm)) return {};
      [[fallthrough]];
    case Role::kKeyNorm:
    case Role::kKeyNormBias:
      return key_change(own, config, layer, sizes.kv_heads, false);
    case Role::kQuery:
    case Role::kQueryBias:
      if (has_row(config, layer, Role::kQueryNorm)) return {};
      [[fallthrough]];
    case Role::kQueryNorm:
    case Role::kQueryNormBias:
      return key_change(read, config, layer, sizes.heads, true);
    case Role::kValue:
    case Role::kValueBias:
      return {.factors = own.v};
    case Role::kOutput:
      if (read.v.empty()) return {};
      return {.factors = inverse(repeated(read.v, sizes))};
    default:
      return {};
  }
}

bool is_transposed(const ExpectedTensor& tensor) {
  return tensor.row->layout == Layout::kInOut;
}

int64_t outputs_of(const ExpectedTensor& tensor) {
  return tensor.shape[is_transposed(tensor) ? 1 : 0];
}

/// Rows of a fused tensor that hold a role, in the order of the role's outputs.
std::vector<int64_t> rows_of(Role role, const ExpectedTensor& tensor, const ModelConfig& config) {
  std::vector<int64_t> rows;
  for (const auto& [begin, count] :
       row_ranges(role, tensor.row->role, outputs_of(tensor), config, tensor.layer))
    for (int64_t i = 0; i < count; ++i) rows.push_back(begin + i);
  return rows;
}

/// Values of a role, in the rows of the fused tensor that hold it; fill elsewhere.
template <class Value>
void put_rows(const std::vector<Value>& values, const std::vector<int64_t>& rows, size_t count,
              Value fill, std::vector<Value>& all) {
  if (values.empty()) return;
  all.resize(count, fill);
  for (size_t i = 0; i < values.size(); ++i) all[static_cast<size_t>(rows[i])] = values[i];
}

/// Changes of the roles of a fused tensor, in its outputs.
OutputChange fused(const ExpectedTensor& tensor, const ModelConfig& config,
                   const KvFactors& factors) {
  const auto count = static_cast<size_t>(outputs_of(tensor));
  OutputChange all;
  for (const Role role : row_of(tensor.row->role).holds) {
    OutputChange own = change_of_role(role, config, tensor.layer, factors);
    const std::vector<int64_t> rows = rows_of(role, tensor, config);
    for (int64_t& partner : own.partners) partner = rows[static_cast<size_t>(partner)];
    put_rows(own.factors, rows, count, 1.0f, all.factors);
    put_rows(own.shares, rows, count, 0.0f, all.shares);
    if (!own.partners.empty() && all.partners.empty()) all.partners = own_partners(count);
    put_rows(own.partners, rows, count, int64_t{0}, all.partners);
  }
  return all;
}

bool is_norm(Role role) {
  return role == Role::kKeyNorm || role == Role::kQueryNorm || role == Role::kKeyNormBias ||
         role == Role::kQueryNormBias;
}

/// Change of one tensor of a norm: of one head's own, or of the first head where all share it.
OutputChange of_norm(const OutputChange& all, const ExpectedTensor& tensor) {
  if (all.factors.empty()) return {};
  KVCAL_CHECK(all.shares.empty());
  const auto count = static_cast<std::ptrdiff_t>(element_count(tensor.shape));
  const auto begin = all.factors.begin() + tensor.index * count;
  return {.factors = {begin, begin + count}};
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
  if (std::ranges::any_of(config.architecture->layer_tensors,
                          [](const TensorRow& row) { return row.role == Role::kAttendedNorm; }))
    return family_of(config) + " norms the output of attention before its projection";
  if (std::ranges::any_of(config.attention_layers(),
                          [&](int64_t layer) { return !config.layer(layer).has_value_projection; }))
    return family_of(config) + " has layers whose V is the projection of K";
  return std::nullopt;
}

std::optional<std::string> reason_against_key_turns(const ModelConfig& config, int64_t layer) {
  if (auto reason = reason_against_key_factors(config)) return reason;
  for (const int64_t reader : readers_of(config, layer))
    if (has_row(config, reader, Role::kKeyNorm) || has_row(config, reader, Role::kQueryNorm))
      return family_of(config) + " norms Q and K behind their projections";
  return std::nullopt;
}

bool can_shift_key(const ModelConfig& config, int64_t layer) {
  if (config.attention_softcap > 0.0f || !has_row(config, layer, Role::kKeyBias, true) ||
      has_row(config, layer, Role::kKeyNorm))
    return false;
  const std::vector<int64_t> readers = readers_of(config, layer);
  return std::ranges::none_of(
      readers, [&](int64_t reader) { return has_row(config, reader, Role::kSinks); });
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

bool OutputChange::is_exact() const {
  int exponent = 0;
  return shares.empty() && std::ranges::all_of(factors, [&](float factor) {
           return std::frexp(std::fabs(factor), &exponent) == 0.5f;
         });
}

uint64_t TensorChange::partner(uint64_t i) const {
  if (outputs.partners.empty()) return i;
  const uint64_t output = i / elements_an_output % outputs.partners.size();
  // Unsigned numbers wrap, so a partner may stand before its element.
  return i + (static_cast<uint64_t>(outputs.partners[output]) - output) * elements_an_output;
}

float TensorChange::apply(float value, float other, uint64_t i) const {
  if (!offsets.empty()) {
    value += offsets[i];
    other += offsets[partner(i)];
  }
  if (outputs.factors.empty()) return value;
  const uint64_t output = i / elements_an_output % outputs.factors.size();
  const float factor = outputs.factors[output];
  // In double all but the last step is exact.
  if (!outputs.shares.empty() && outputs.shares[output] != 0.0f)
    return static_cast<float>(double{factor} * double{value} +
                              double{outputs.shares[output]} * double{other});
  // Without a change a value keeps its bits.
  return !adds_one || factor == 1.0f
             ? value * factor
             : static_cast<float>((1.0 + double{value}) * double{factor} - 1.0);
}

double TensorChange::error(float value, uint64_t i) const {
  if (!adds_one || outputs.factors.empty()) return 0.0;
  const double wanted = (1.0 + double{value}) *
                        double{outputs.factors[i / elements_an_output % outputs.factors.size()]};
  return wanted == 0.0 ? 0.0 : std::fabs((1.0 + double{apply(value, value, i)}) / wanted - 1.0);
}

TensorChange change_of(const ExpectedTensor& tensor, const ModelConfig& config,
                       const KvFactors& factors) {
  if (tensor.layer == kNoLayer || !config.has_attention(tensor.layer)) return {};
  const Role role = tensor.row->role;
  if (is_norm(role))
    return {.outputs = of_norm(change_of_role(role, config, tensor.layer, factors), tensor),
            .adds_one = row_of(role).tensor_class == TensorClass::kNorm &&
                        config.architecture->norm_adds_one};
  const bool is_fused = !row_of(role).holds.empty();
  TensorChange change;
  change.outputs = is_fused ? fused(tensor, config, factors)
                            : change_of_role(role, config, tensor.layer, factors);
  const std::vector<float>& offset = factors[static_cast<size_t>(tensor.layer)].key_offset;
  if (role == Role::kKeyBias) change.offsets = offset;
  if (holds(role, Role::kKeyBias))
    put_rows(offset, rows_of(Role::kKeyBias, tensor, config),
             static_cast<size_t>(outputs_of(tensor)), 0.0f, change.offsets);
  // The change is one of the outputs, but for the projection behind attention.
  if (tensor.shape.rank() > 1 && is_transposed(tensor) == (role == Role::kOutput))
    change.elements_an_output = static_cast<uint64_t>(tensor.shape[1]);
  return change;
}

}  // namespace kvcal
