#include "forward/token_batch.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvcal {
namespace {

/// transformers computes the powers in float32, and an angle is a float32 product. Rounding at the
/// same points keeps long sequences in agreement.
std::vector<float> plain_frequencies(double theta, int64_t dim) {
  std::vector<float> inverse;
  for (int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    inverse.push_back(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return inverse;
}

/// Divides the frequencies of long wavelengths by factor, keeps short ones, and blends those
/// between.
void scale_llama3(const RopeConfig& rope, std::vector<float>& inverse) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  for (float& frequency : inverse) {
    const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(frequency);
    if (wavelength < original / rope.high_freq_factor) continue;
    const double stretched = static_cast<double>(frequency) / rope.factor;
    if (wavelength > original / rope.low_freq_factor) {
      frequency = static_cast<float>(stretched);
      continue;
    }
    const double smooth = (original / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    frequency =
        static_cast<float>((1.0 - smooth) * stretched + smooth * static_cast<double>(frequency));
  }
}

RopeFrequencies longrope_frequencies(const RopeConfig& rope, bool is_long) {
  const std::vector<double>& stretch = is_long ? rope.long_factor : rope.short_factor;
  RopeFrequencies result;
  for (int64_t i = 0; i < rope.rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rope.rotary_dim);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    result.inverse.push_back(1.0f /
                             (static_cast<float>(stretch[static_cast<size_t>(i / 2)]) * power));
  }
  double attention = rope.attention_factor;
  if (attention == 0.0) attention = is_long ? rope.long_mscale : rope.short_mscale;
  if (attention == 0.0)
    attention =
        rope.factor <= 1.0
            ? 1.0
            : std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(
                                                          rope.original_max_position_embeddings)));
  result.attention_factor = static_cast<float>(attention);
  return result;
}

RopeFrequencies yarn_frequencies(const RopeConfig& rope, RopeFrequencies result) {
  const auto width = static_cast<double>(rope.rotary_dim);
  const auto correction_dim = [&](double rotations) {
    return width *
           std::log(static_cast<double>(rope.original_max_position_embeddings) /
                    (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = correction_dim(rope.beta_fast), high = correction_dim(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1.0);
  if (low == high) high += 0.001;

  for (size_t i = 0; i < result.inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto kept = static_cast<double>(result.inverse[i]);
    result.inverse[i] = static_cast<float>(kept / rope.factor * ramp + kept * (1.0 - ramp));
  }
  double attention = rope.attention_factor;
  if (attention == 0.0)
    attention =
        rope.mscale != 0.0 && rope.mscale_all_dim != 0.0
            ? yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim)
            : yarn_mscale(rope.factor, 1.0);
  result.attention_factor = static_cast<float>(attention);
  return result;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t sequence_length) {
  const int64_t dim = rope.rotary_dim;
  RopeFrequencies plain{plain_frequencies(rope.theta, dim)};
  switch (rope.type) {
    case RopeConfig::Type::kDefault:
      return plain;
    case RopeConfig::Type::kLinear:
      for (float& frequency : plain.inverse) frequency /= static_cast<float>(rope.factor);
      return plain;
    case RopeConfig::Type::kProportional: {
      const auto turning = static_cast<size_t>(rope.turning_dim / 2);
      for (size_t i = 0; i < plain.inverse.size(); ++i)
        plain.inverse[i] = i < turning ? plain.inverse[i] / static_cast<float>(rope.factor) : 0.0f;
      return plain;
    }
    case RopeConfig::Type::kDynamic: {
      const auto trained = static_cast<double>(rope.max_position_embeddings);
      const double length = std::max(static_cast<double>(sequence_length), trained);
      const double stretch = rope.factor * length / trained - (rope.factor - 1.0);
      const double theta =
          rope.theta * std::pow(stretch, static_cast<double>(dim) / static_cast<double>(dim - 2));
      return {plain_frequencies(theta, dim)};
    }
    case RopeConfig::Type::kLlama3:
      scale_llama3(rope, plain.inverse);
      return plain;
    case RopeConfig::Type::kLongRope:
      return longrope_frequencies(rope, rope_block(rope, sequence_length) != 0);
    case RopeConfig::Type::kYarn:
      return yarn_frequencies(rope, std::move(plain));
  }
  KVCAL_CHECK(false);
  return {};
}

int64_t rope_block(const RopeConfig& rope, int64_t sequence_length) {
  if (rope.type == RopeConfig::Type::kDynamic)
    return sequence_length > rope.max_position_embeddings ? sequence_length : 0;
  if (rope.type == RopeConfig::Type::kLongRope)
    return sequence_length > rope.original_max_position_embeddings ? 1 : 0;
  return 0;
}

std::map<int64_t, int64_t> rope_rows(const RopeConfig& rope, std::span<const int64_t> lengths) {
  std::map<int64_t, int64_t> rows_of_block;
  for (const int64_t length : lengths) {
    int64_t& rows = rows_of_block[rope_block(rope, length)];
    rows = std::max(rows, length);
  }
  return rows_of_block;
}

namespace {

/// Source: transformers ministral3 `get_llama_4_attn_scale`; of late growth inkling
/// `InklingAttention`.
float query_growth(const RopeConfig& rope, size_t position) {
  const auto shifted = static_cast<double>(position) + static_cast<double>(rope.query_growth_shift);
  const double share = shifted / static_cast<double>(rope.original_max_position_embeddings);
  if (rope.queries_grow_late)
    return static_cast<float>(1.0 + rope.query_beta * std::log(std::max(share, 1.0)));
  const double times = std::floor(share);
  return static_cast<float>(1.0 + rope.query_beta * std::log(1.0 + times));
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& rope, const std::vector<int64_t>& sequence_lengths,
                     Backend& backend, const std::set<TokenPlace>& places)
    : rope_(&rope) {
  std::vector<float> cos, sin;
  const float direction = rope.turns_back ? -1.0f : 1.0f;
  const auto add_row = [&](const RopeFrequencies& frequencies, const TokenPlace& place) {
    for (size_t pair = 0; pair < frequencies.inverse.size(); ++pair) {
      const auto position = static_cast<float>(place[rope.axis_of(static_cast<int64_t>(pair))]);
      const auto angle = static_cast<double>(position * frequencies.inverse[pair]);
      cos.push_back(static_cast<float>(std::cos(angle)) * frequencies.attention_factor);
      sin.push_back(static_cast<float>(std::sin(angle)) * frequencies.attention_factor * direction);
    }
  };
  int64_t all_rows = 0;
  for (const auto& [block, rows] : rope_rows(rope, sequence_lengths)) {
    const RopeFrequencies frequencies = rope_frequencies(rope, rows);
    first_row_[block] = all_rows;
    all_rows += rows;
    for (int32_t position = 0; position < rows; ++position)
      add_row(frequencies, {position, position, position});
  }
  if (!places.empty()) {
    // Only ropes of one block have places (check_images), whose frequencies know no length.
    KVCAL_CHECK(rope.query_beta == 0.0);
    const RopeFrequencies frequencies = rope_frequencies(rope, 0);
    for (const TokenPlace& place : places) {
      place_rows_[place] = static_cast<int32_t>(all_rows++);
      add_row(frequencies, place);
    }
  }
  if (rope.query_beta != 0.0) {
    KVCAL_CHECK(first_row_.size() == 1);  // the scaling goes with ropes whose block is one
    make_growth(static_cast<size_t>(all_rows), backend);
  }
  if (rope.rotary_dim == 0) return;
  cos_ = upload<float>(cos, backend);
  sin_ = upload<float>(sin, backend);
  if (rope.query_beta == 0.0) return;
  const auto pairs = static_cast<size_t>(rope.rotary_dim / 2);
  for (size_t i = 0; i < cos.size(); ++i) {
    const float growth = query_growth(rope, i / pairs);
    cos[i] *= growth;
    sin[i] *= growth;
  }
  query_cos_ = upload<float>(cos, backend);
  query_sin_ = upload<float>(sin, backend);
}

void RopeTable::make_growth(size_t rows, Backend& backend) {
  const auto pairs = static_cast<size_t>(rope_->unturned_dim / 2);
  if (pairs == 0) return;
  std::vector<float> growth;
  for (size_t row = 0; row < rows; ++row)
    growth.insert(growth.end(), pairs, query_growth(*rope_, row));
  growth_ = upload<float>(growth, backend);
  no_turn_ = upload<float>(std::vector<float>(growth.size(), 0.0f), backend);
}

int32_t RopeTable::row(int64_t position, int64_t sequence_length) const {
  const auto block = first_row_.find(rope_block(*rope_, sequence_length));
  KVCAL_CHECK(block != first_row_.end());
  return static_cast<int32_t>(block->second + position);
}

RopeTables rope_tables(const ModelConfig& config, const std::vector<int64_t>& sequence_lengths,
                       Backend& backend, const std::set<TokenPlace>& places) {
  RopeTables tables;
  for (const RopeConfig& rope : config.ropes)
    tables.emplace_back(rope, sequence_lengths, backend, places);
  return tables;
}

std::set<TokenPlace> places_of(std::span<const EmbeddedTokens* const> samples) {
  std::set<TokenPlace> places;
  for (const EmbeddedTokens* sample : samples)
    if (sample) places.insert(sample->places.begin(), sample->places.end());
  return places;
}

void TokenBatch::append(std::span<const TokenId> tokens, int64_t position, int64_t whole_length) {
  const int64_t count = std::ssize(tokens);
  segments.push_back({.q_begin = num_tokens,
                      .q_count = count,
                      .kv_begin = num_tokens,
                      .kv_count = position + count});
  whole_lengths.push_back(whole_length);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  num_tokens += count;
}

std::vector<SlotRun> slot_runs(const TokenBatch& batch, bool continues_states) {
  const std::span<const Segment> segments = batch.segments;
  if (!continues_states) return {{.segments = segments}};
  const auto slot_of = [&](size_t i) { return batch.slots.empty() ? 0 : batch.slots[i]; };
  std::vector<SlotRun> runs;
  for (size_t begin = 0, end = 0; begin < segments.size(); begin = end) {
    for (end = begin + 1; end < segments.size() && slot_of(end) == slot_of(end - 1) + 1;) ++end;
    runs.push_back(
        {.segments = segments.subspan(begin, end - begin), .first_slot = slot_of(begin)});
  }
  return runs;
}

std::vector<int32_t> TokenBatch::in_sequence() const {
  std::vector<int32_t> all;
  for (const Segment& segment : segments)
    for (int64_t left = segment.q_count; left > 0; --left)
      all.push_back(static_cast<int32_t>(segment.kv_count - left));
  return all;
}

void TokenBatch::upload_positions(const RopeTables& tables, Backend& backend) {
  ropes = &tables;
  const std::vector<int32_t> in_sequence = this->in_sequence();
  for (const RopeTable& table : tables) {
    std::vector<int32_t> rows;
    for (size_t i = 0; i < segments.size(); ++i) {
      const EmbeddedTokens* images = embedded_of(i);
      const bool has_places = images && !images->places.empty();
      for (int64_t token = 0; token < segments[i].q_count; ++token)
        rows.push_back(has_places ? table.row_of(images->places[static_cast<size_t>(token)])
                                  : table.row(in_sequence[rows.size()], whole_lengths[i]));
    }
    positions.push_back(owned_positions.emplace_back(upload<int32_t>(rows, backend)).as<int32_t>());
  }
}

}  // namespace kvcal
