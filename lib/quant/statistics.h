#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quant/damage_verdict.h"
#include "quant/observations.h"
#include "quant/provenance.h"
#include "quant/scale.h"

namespace kvcal {

/// Statistics of one tensor in a forward pass, sample by sample: the input of every observer.
struct TensorStatistics {
  int64_t heads = 1;  ///< 1 for the input of a Linear, and for a group of heads that share a scale
  /// [samples, heads], in data set order; empty where a sample had no values.
  std::vector<Range> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [heads], of all samples
  /// Extremes of all samples and heads by bucket of positions (position_buckets.h), of K and V;
  /// empty: not known.
  std::vector<Range> positions = {};
  /// Extremes of all samples and heads, of tokens of text, then of images; empty: all are text.
  std::vector<Range> kinds = {};
  /// [samples, channels], head by head, of K and V in runs whose recipe has scales of channels;
  /// empty: not known.
  std::vector<Range> channels = {};

  int64_t samples() const { return static_cast<int64_t>(ranges.size()) / heads; }
  Range range() const {
    Range all;
    for (const Range& one : ranges) all.fold(one);
    return all;
  }
};

/// What a cache did to attention in the run, with the scales that the run made.
struct ComparedScales {
  AttentionDamage damage;
  std::vector<Scale> k, v;
};

/// K, V and, where requested, the queries of one attention module.
struct AttentionStatistics {
  std::string module;  ///< "model.layers.0.self_attn"
  TensorStatistics k, v;
  std::optional<TensorStatistics> q = {};
  std::optional<ComparedScales> compared = {};  ///< nullopt: attention was not compared
};

/// Input that one or several Linears read.
struct InputStatistics {
  std::string name;  ///< of the first of them: "model.layers.0.self_attn.q_proj"
  TensorStatistics seen;
  uint64_t tokens = 0;  ///< for an expert only routed tokens, or all where all experts were shown
};

/// All statistics of a run over a model.
struct Statistics {
  Provenance origin;
  std::vector<AttentionStatistics> attention;  ///< in layer order
  std::vector<InputStatistics> inputs;         ///< in the model's order, lm_head's last
};

}  // namespace kvcal
