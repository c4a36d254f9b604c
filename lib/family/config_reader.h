#pragma once

#include <string_view>

#include "family/architecture.h"

namespace kvcal {

/// Sizes above these are not models but mistakes or attacks; products of them stay far from
/// overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
/// Each has tensors and modules with names of their own.
constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 17;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

/// A config.json through its family's eyes: standard keys by whatever name the file gives them,
/// with the family's defaults for those it leaves out.
class ConfigReader {
 public:
  ConfigReader(const Json& file, const Architecture& architecture);

  /// The name of the key in the file, for messages.
  std::string_view name_of(std::string_view key) const;
  const Json* find(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  /// Throws Error where it is absent or leaves [least, most].
  int64_t size(std::string_view key, int64_t most, int64_t least = 1) const;
  double positive(std::string_view key) const;

 private:
  Json json_;
  const Architecture& architecture_;
};

/// ropes and the rope of each layer, whose windows are known. Throws Error.
void parse_ropes(const ConfigReader& reader, ModelConfig& config);

/// Which layers attend, and the sizes of those that do not. Throws Error.
void parse_mixers(const ConfigReader& reader, ModelConfig& config);

/// Windows, experts and positions of each layer. Throws Error.
void parse_layers(const ConfigReader& reader, ModelConfig& config);

}  // namespace kvcal
