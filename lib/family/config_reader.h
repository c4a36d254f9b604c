#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
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
  /// Whether the key is there under any of its names: a family's default stands under one of them,
  /// and transformers reads and saves others.
  bool is_said(std::string_view key) const;
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

/// Whether a key of config.json changes no value that the text model computes, in any family:
/// names of classes, special tokens, options of training, of sampling and of the library. Source:
/// transformers 5.23, `PreTrainedConfig` and `GenerationConfig`, and the configs of its models.
bool is_neutral_key(std::string_view key, const Json& value);

// Ranges of the numbers of a config.json. Outside of its own a number is a mistake, and arithmetic
// in float32 would hide it as zeros or infinities.

/// A key that code reads as a number, alone or in a list, in any object of a config.json.
struct NumberRow {
  std::string_view key;
  NumberRange range;
};
/// All of them; families' own tables (NumberKey) name further ones.
const std::vector<NumberRow>& number_rows();

/// object[name] in the range of key's row, which must exist; nullopt where it is absent or null.
/// name: the key's name in the object, where it is another. Throws Error naming key, value and
/// range.
std::optional<double> number_of(const Json& object, std::string_view key,
                                std::string_view name = {});
/// The same for a key that must be there.
double required_number_of(const Json& object, std::string_view key);
/// list[index] in the range of key's row. name: the list's, where it is another. Throws Error
/// naming the entry.
double number_at(const Json& list, size_t index, std::string_view key, std::string_view name = {});
/// Throws Error for a value of the key that lies outside of range.
void check_number(std::string_view name, double value, const NumberRange& range);

}  // namespace kvcal
