#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "rewrite/kv_factors.h"

namespace kvcal {

/// Outliers to put into a model's K and V: parts joined by ";", each a word and "key=value" joined
/// by ",".
///
///   k:pairs=2,factor=1024     RoPE pairs of each KV head, times a power of two; undone in Q
///   v:channels=1,factor=16    channels of V of each KV head; undone behind attention
///   bias:norm=750             a bias of K with this norm in the slowest pair of each KV head, as
///                             Qwen2 has it: another function
///   bias:norm=350,pairs=4     likewise in as many of the slowest pairs, each in a direction of its
///                             own, as Qwen2.5 has it
///   layers=0,4-7,29           layers of all parts; else k and v are in all, bias in first and last
struct OutlierSpec {
  struct Part {
    int64_t count = 1;    ///< pairs or channels
    float factor = 1.0f;  ///< a power of two: no bit of a mantissa changes
  };
  std::optional<Part> k = {}, v = {};
  std::optional<float> bias_norm = {};
  std::optional<int64_t> bias_pairs = {};  ///< nullopt: the slowest, its two channels alike
  std::vector<int64_t> layers = {};        ///< ascending; empty: those of each part
};

/// Throws Error that quotes the part of the text that is wrong.
OutlierSpec parse_outlier_spec(std::string_view text);

/// Factors and offsets of every layer. Pairs are drawn from the slower half of those that turn, as
/// trained models have their outliers there, then from the others. Same seed, same choice. Throws
/// Error naming the family where the model cannot have such outliers, and for counts and layers
/// that it does not have.
KvFactors outlier_factors(const ModelConfig& config, const OutlierSpec& spec, uint64_t seed);

}  // namespace kvcal
