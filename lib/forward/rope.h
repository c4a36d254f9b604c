#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"

namespace kvcal {

/// Angle per position for each pair of dimensions, [rotary_dim / 2], and the factor of cos and sin.
/// Only dynamic and longrope scaling depend on sequence_length. Source: transformers
/// `ROPE_INIT_FUNCTIONS`.
struct RopeFrequencies {
  std::vector<float> inverse;
  float attention_factor = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t sequence_length);

/// cos and sin for all positions in use, in backend memory.
class RopeTable {
 public:
  /// Makes rows for the positions of sequences of these lengths. rope must outlive the table.
  RopeTable(const RopeConfig& rope, const std::vector<int64_t>& sequence_lengths, Backend& backend);

  const float* cos() const { return cos_.as<float>(); }
  const float* sin() const { return sin_.as<float>(); }
  /// Tables for queries, which may scale with the position.
  const float* query_cos() const { return query_cos_.size() > 0 ? query_cos_.as<float>() : cos(); }
  const float* query_sin() const { return query_sin_.size() > 0 ? query_sin_.as<float>() : sin(); }
  int64_t rotary_dim() const { return rope_->rotary_dim; }
  /// Tables [positions, unturned_dim / 2] under which the unturned dimensions of queries grow and
  /// do not turn; null where queries do not scale or all dimensions turn.
  const float* growth_cos() const { return growth_.size() > 0 ? growth_.as<float>() : nullptr; }
  const float* growth_sin() const { return no_turn_.as<float>(); }
  int64_t unturned_dim() const { return rope_->unturned_dim; }
  /// Table row of a position in a sequence of that length.
  int32_t row(int64_t position, int64_t sequence_length) const;

 private:
  const RopeConfig* rope_;
  std::map<int64_t, int64_t> first_row_;  ///< by rope_block
  void make_growth(size_t rows, Backend& backend);

  Buffer cos_, sin_, query_cos_, query_sin_, growth_, no_turn_;
};

/// Key under which sequences share frequencies: 0 for all unscaled ones, the length with dynamic
/// scaling, 1 beyond longrope's threshold.
int64_t rope_block(const RopeConfig& rope, int64_t sequence_length);

/// The tables of all ropes of a model.
class RopeTables {
 public:
  RopeTables(const ModelConfig& config, const std::vector<int64_t>& sequence_lengths,
             Backend& backend);

  const RopeTable& table(int64_t rope) const { return tables_[static_cast<size_t>(rope)]; }
  int64_t count() const { return static_cast<int64_t>(tables_.size()); }

 private:
  std::vector<RopeTable> tables_;
};

/// Positions of a batch's tokens, in each rope's table.
class TokenPositions {
 public:
  void add(int64_t position, int64_t sequence_length) {
    positions_.emplace_back(position, sequence_length);
  }
  /// int32 [tokens] of each table, in backend memory.
  std::vector<Buffer> upload_rows(const RopeTables& tables, Backend& backend) const;
  /// The positions themselves.
  std::vector<int32_t> values() const;

 private:
  std::vector<std::pair<int64_t, int64_t>> positions_;
};

}  // namespace kvcal
