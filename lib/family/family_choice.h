#pragma once

#include <string>
#include <string_view>

namespace kvcal {

struct Architecture;

/// The family by which checkpoints run whose model_type no family has: a built-in one, or one that
/// a file describes. A value: commands pass it to everything that reads a config.json.
struct FamilyChoice {
  const Architecture* architecture = nullptr;  ///< nullptr: such checkpoints are refused; borrowed
  std::string option = {}, value = {};         ///< as it was given: "--family", "qwen3"
  std::string file_sha256 = {};                ///< of the file; empty: a built-in family

  bool operator==(const FamilyChoice&) const = default;
  explicit operator bool() const { return architecture != nullptr; }
  bool is_from_file() const { return !file_sha256.empty(); }
  std::string text() const { return option + " " + value; }
  /// Path of the file; empty: a built-in family.
  std::string file() const { return is_from_file() ? value : std::string(); }
};

/// The built-in family of a name, as --family takes it. Throws Error with the nearest name.
FamilyChoice choose_family(std::string_view name);

}  // namespace kvcal
