#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// Limits of sizes. Larger values are mistakes or attacks; products of sizes within the limits
/// cannot overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
/// Each expert has tensors and modules with names of its own.
constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 17;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

/// Reads a config.json with its family's rules: standard keys under the name that the file uses,
/// and the family's defaults for absent keys.
class ConfigReader {
 public:
  /// more_defaults: as JSON, for keys that neither the file nor the family's defaults have.
  ConfigReader(const Json& file, const Architecture& architecture,
               std::string_view more_defaults = "{}");

  /// Name of the key in the file, for messages.
  std::string_view name_of(std::string_view key) const;
  const Json* find(std::string_view key) const;
  /// Whether the key's value is the family's, for the file has none.
  bool is_defaulted(std::string_view key) const { return defaulted_.contains(name_of(key)); }
  /// Whether the family's defaults name the key or an alias of it.
  bool has_default(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  /// In the range of the key's NumberRow.
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  /// Value of key. Throws Error where it is absent or outside [least, most].
  int64_t size(std::string_view key, int64_t most, int64_t least = 1) const;
  double required_number(std::string_view key) const;
  /// In the range that a family's table gives for it.
  std::optional<double> number(const NumberKey& row) const;

  /// Counts keys as read that another key of the same variation turned off.
  void knows(std::initializer_list<std::string_view> keys) const;
  /// Keys of file that nothing has asked for, that the family does not name in known_keys, and that
  /// may change the maths: all but is_neutral_key's. Keys within a rope's object as "rope_x.key".
  std::vector<std::string> unread_keys(const Json& file) const;

 private:
  /// key: the last part of name, for a key in an object.
  bool is_unread(const std::string& name, std::string_view key, const Json& value) const;

  Json json_;
  std::set<std::string, std::less<>> defaulted_;  ///< keys of json_ that the file has not
  const Architecture& architecture_;
  mutable std::set<std::string, std::less<>> asked_;  ///< keys and their aliases
};

/// Whether layers of the family may have a tensor of the role.
bool has_row(const Architecture& architecture, Role role);

/// Throws Error where the key's value is no list, or has not one entry for each layer.
void check_one_a_layer(std::string_view key, const Json& list, int64_t num_layers);

/// Sets the ropes and the rope of each layer; windows must be set. Throws Error.
void parse_ropes(const ConfigReader& reader, ModelConfig& config);

/// Sets the rope of each layer by layer_rope_theta; those of parse_ropes must be set. Throws Error.
void parse_ropes_by_layer(const ConfigReader& reader, ModelConfig& config);

/// Number of layers of the list of mixers and MLPs; nullopt: there is none. Throws Error.
std::optional<int64_t> listed_layers(const ConfigReader& reader);

/// Sets the mixer of each layer, and the sizes of recurrent mixers. Throws Error.
void parse_mixers(const ConfigReader& reader, ModelConfig& config);

/// Sets heads, cache and MLP width of each layer. sliding: the layers with a window. Throws Error.
void parse_attention_sizes(const ConfigReader& reader, ModelConfig& config,
                           const std::vector<bool>& sliding);

/// Sets the indexer of sparse attention, and the layers that have one. Throws Error.
void parse_indexers(const ConfigReader& reader, ModelConfig& config);

/// Whether intermediate_size lists the widths of the layers' MLPs.
bool lists_mlp_widths(const ConfigReader& reader, const Architecture& architecture);

/// Sets width and sparsity of each layer's MLP, where they are lists. Throws Error.
void parse_mlps_by_layer(const ConfigReader& reader, ModelConfig& config);

/// Sets the parallel residual streams, and the residual beside attention. Throws Error.
void parse_streams(const ConfigReader& reader, ModelConfig& config);

/// Sets windows, experts and positions of each layer. Throws Error.
void parse_layers(const ConfigReader& reader, ModelConfig& config);

}  // namespace kvcal
