#include "synth/synthetic_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/half.h"

namespace kvcal {
namespace {

constexpr float kSmallestGain = 10.0f, kLargestGain = 30.0f;
constexpr int64_t kMostOutliersOfHead = 8;
constexpr float kBiasSpread = 0.1f, kNormSpread = 0.05f, kCorrectionSpread = 0.02f;
// Step sizes of Mamba at its initialisation are 0.001 to 0.1; these are what softplus makes so.
constexpr float kLeastStepBias = -6.9f, kMostStepBias = -2.25f;
// Decay rates are 1 to 16, and the file holds their logarithm.
constexpr float kMostLogDecay = 2.77f;
// Source: transformers 5.23 `XIELUActivation`.
constexpr float kXieluBeta = 0.5f, kXieluEps = -1e-6f;

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

/// The finalizer of SplitMix64, whose n-th number is mixed(seed + n · kGolden). Source: Steele,
/// Lea, Flood, "Fast splittable pseudorandom number generators", 2014, with Stafford's constants.
constexpr uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// FNV-1a, mixed with the seed.
uint64_t key_of(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mixed(hash ^ mixed(seed + kGolden));
}

/// Sum of the four 16-bit parts, less its mean, as an integer: nearly normal, within 3.5 standard
/// deviations, and the same on every machine.
int32_t centered_sum(uint64_t bits) {
  constexpr uint64_t kMask = 0x0000ffff0000ffffu;
  const uint64_t pairs = (bits & kMask) + ((bits >> 16) & kMask);
  const uint64_t sum = (pairs & 0xffffffffu) + (pairs >> 32);
  return static_cast<int32_t>(sum) - 131070;
}
/// 1 / standard deviation of centered_sum: of four uniforms on [0, 65535], sqrt(4 · (2^32 - 1) /
/// 12).
constexpr float kInverseDeviation = 1.0f / 37837.227f;

float inverse_root(double value) {
  return static_cast<float>(1.0 / std::sqrt(value));
}

/// Values that each output of a matrix sums.
int64_t inputs_of(const ExpectedTensor& tensor) {
  const TensorRow& row = *tensor.row;
  const size_t first = row.is_stacked() && !row.is_flat ? 1 : 0;
  if (row.layout == Layout::kInOut || row.layout == Layout::kInOutInterleaved)
    return tensor.shape[first] / (row.is_flat ? tensor.count : 1);
  int64_t inputs = 1;
  for (size_t i = first + 1; i < tensor.shape.rank(); ++i) inputs *= tensor.shape[i];
  return inputs;
}

/// So that 2 · layers branches together add as much as the embedding gave.
float branch_share(const ModelConfig& config) {
  return inverse_root(2.0 * static_cast<double>(config.num_hidden_layers));
}

/// An embedding that is lm_head too must neither drown in the residual nor blow up the logits.
float embedding_spread(const ModelConfig& config) {
  const auto multiplier = static_cast<double>(config.embedding_multiplier);
  if (!config.tie_word_embeddings) return static_cast<float>(1.0 / multiplier);
  return inverse_root(multiplier * std::sqrt(static_cast<double>(config.hidden_size)));
}

double mean_square(const std::vector<float>& gains) {
  double sum = 0.0;
  for (const float gain : gains) sum += static_cast<double>(gain) * static_cast<double>(gain);
  return sum / static_cast<double>(gains.size());
}

bool has_key_norm(const ModelConfig& config, int64_t layer) {
  const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
  return std::ranges::any_of(config.architecture->layer_tensors, [&](const TensorRow& row) {
    return row.role == Role::kKeyNorm && config.holds(row.conditions, &own);
  });
}

/// A channel of a head that RoPE turns slowly, as those are where trained models are large: pairs
/// are halves apart, and the later ones turn slower.
int64_t slow_channel(int64_t dim, uint64_t bits) {
  const int64_t half = std::max<int64_t>(dim / 2, 1), quarter = half / 2;
  const auto pick = static_cast<int64_t>(bits >> 1) % (half - quarter);
  const int64_t channel = quarter + pick + ((bits & 1) != 0 ? half : 0);
  return std::min(channel, dim - 1);
}

/// The gains of a fused Q, K, V: 1 in the rows of Q and V.
std::vector<float> fused_gains(const ModelConfig& config, int64_t layer,
                               const std::vector<float>& keys) {
  const int64_t rows = config.attention(layer).qkv_width();
  std::vector<float> gains(static_cast<size_t>(rows), 1.0f);
  auto key = keys.begin();
  for (const auto& [begin, count] :
       row_ranges(Role::kKey, Role::kQueryKeyValue, rows, config, layer)) {
    std::copy(key, key + count, gains.begin() + begin);
    key += count;
  }
  return gains;
}

/// Those of a tensor that K is made by. Where K is normed, by the norm's weight: it would undo a
/// projection's.
std::vector<float> gains_of(const ExpectedTensor& tensor, const ModelConfig& config,
                            uint64_t seed) {
  const auto keys = [&] { return key_gains(config, tensor.layer, seed); };
  switch (tensor.row->role) {
    case Role::kKey:
    case Role::kKeyBias:
      return has_key_norm(config, tensor.layer) ? std::vector<float>() : keys();
    case Role::kQueryKeyValue:
    case Role::kQueryKeyValueBias:
      return has_key_norm(config, tensor.layer) ? std::vector<float>()
                                                : fused_gains(config, tensor.layer, keys());
    case Role::kKeyNorm: {  // of one head, which may serve all, or of all
      const std::vector<float> all = keys();
      const auto count = static_cast<std::ptrdiff_t>(element_count(tensor.shape));
      const auto begin = all.begin() + tensor.index * count;
      return {begin, begin + count};
    }
    case Role::kLatentNorm:
      return keys();
    default:
      return {};
  }
}

}  // namespace

std::vector<float> key_gains(const ModelConfig& config, int64_t layer, uint64_t seed) {
  const int64_t heads = config.cache(layer).heads, dim = config.cache(layer).k_dim;
  const int64_t outliers = std::clamp<int64_t>(dim / 32, 1, kMostOutliersOfHead);
  std::vector<float> gains(static_cast<size_t>(heads * dim), 1.0f);
  const uint64_t key = key_of("key gains of layer " + std::to_string(layer), seed);
  for (int64_t i = 0; i < heads * outliers; ++i) {
    const uint64_t bits = mixed(key + static_cast<uint64_t>(i) * kGolden);
    const float share = static_cast<float>(bits >> 40) * 0x1p-24f;
    const int64_t channel = i / outliers * dim + slow_channel(dim, bits & 0xffffffffu);
    gains[static_cast<size_t>(channel)] = kSmallestGain + share * (kLargestGain - kSmallestGain);
  }
  return gains;
}

SyntheticValues::Spread SyntheticValues::spread_of(const ExpectedTensor& tensor,
                                                   const ModelConfig& config, uint64_t seed) {
  const float share = branch_share(config);
  const float by_inputs = inverse_root(static_cast<double>(inputs_of(tensor)));
  const float offset = config.architecture->norm_adds_one ? 1.0f : 0.0f;
  switch (row_of(tensor.row->role).tensor_class) {
    case TensorClass::kEmbedding:
      return {.spread = embedding_spread(config)};
    case TensorClass::kNorm:
      return {.mean = 1.0f, .spread = kNormSpread, .offset = offset};
    case TensorClass::kOutputNorm:
      return {.mean = share, .spread = kNormSpread * share, .offset = offset};
    case TensorClass::kMixerNorm:
      return {.mean = 1.0f, .spread = kNormSpread};
    case TensorClass::kCorrection:
      return {.spread = kCorrectionSpread};
    case TensorClass::kBias:
      return {.spread = kBiasSpread};
    case TensorClass::kOutputBias:
      return {.spread = kBiasSpread * share};
    case TensorClass::kSinks:
      return {.spread = 1.0f};
    case TensorClass::kStepBias:
      return {.mean = kLeastStepBias,
              .spread = kMostStepBias - kLeastStepBias,
              .noise = Noise::kUniform};
    case TensorClass::kLogDecay:
      return {.spread = kMostLogDecay, .noise = Noise::kUniform};
    case TensorClass::kActivationBeta:
      return {.mean = kXieluBeta};
    case TensorClass::kHashNumber:  // no random values: shards_of makes them
      break;
    case TensorClass::kActivationEps:
      return {.mean = kXieluEps};
    case TensorClass::kMatrix:
      return {.spread = by_inputs};
    case TensorClass::kOutputMatrix:
      return {.spread = by_inputs * share};
    case TensorClass::kLatentUp:
      return {.spread =
                  by_inputs * inverse_root(mean_square(key_gains(config, tensor.layer, seed)))};
  }
  KVCAL_CHECK(false);
  return {};
}

SyntheticValues::SyntheticValues(const ExpectedTensor& tensor, const ModelConfig& config,
                                 uint64_t seed)
    : key_(key_of(tensor.name, seed)),
      spread_(spread_of(tensor, config, seed)),
      gains_(gains_of(tensor, config, seed)) {
  const bool has_rows = tensor.shape.rank() > 1 && tensor.row->layout == Layout::kOutIn;
  if (has_rows && !gains_.empty()) elements_a_gain_ = element_count(tensor.shape) / gains_.size();
}

template <class Store>
void SyntheticValues::fill_as(uint64_t first, uint64_t count, const Store& store) const {
  const uint64_t end = first + count;
  for (uint64_t i = first; i < end;) {
    float gain = 1.0f;
    uint64_t same_end = end;
    if (!gains_.empty()) {
      gain = gains_[i / elements_a_gain_ % gains_.size()];
      same_end = std::min(end, (i / elements_a_gain_ + 1) * elements_a_gain_);
    }
    const float mean = spread_.mean * gain - spread_.offset;
    uint64_t state = key_ + i * kGolden;
    if (spread_.noise == Noise::kUniform) {
      const float step = spread_.spread * gain * 0x1p-24f;
      for (; i < same_end; ++i, state += kGolden)
        store(i - first, mean + step * static_cast<float>(mixed(state) >> 40));
    } else {
      const float step = spread_.spread * gain * kInverseDeviation;
      for (; i < same_end; ++i, state += kGolden)
        store(i - first, mean + step * static_cast<float>(centered_sum(mixed(state))));
    }
  }
}

void SyntheticValues::fill(DType dtype, uint64_t first, std::span<std::byte> bytes) const {
  std::byte* const to = bytes.data();
  // The first byte need not be aligned in a buffer that holds other tensors before.
  switch (dtype) {
    case DType::kF32:
      return fill_as(first, bytes.size() / 4, [to](uint64_t i, float value) {
        std::memcpy(to + 4 * i, &value, sizeof value);
      });
    case DType::kF16:
      return fill_as(first, bytes.size() / 2, [to](uint64_t i, float value) {
        const F16 half = to_f16(value);
        std::memcpy(to + 2 * i, &half, sizeof half);
      });
    default:
      KVCAL_CHECK(dtype == DType::kBF16);
      return fill_as(first, bytes.size() / 2, [to](uint64_t i, float value) {
        const BF16 half = to_bf16(value);
        std::memcpy(to + 2 * i, &half, sizeof half);
      });
  }
}

}  // namespace kvcal
