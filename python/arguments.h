#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"

namespace kvcal {

/// Keyword arguments of a call from Python, as a JSON object; null and absent ones leave the
/// target's default. All throw Error that names the argument.
class Arguments {
 public:
  explicit Arguments(Json values) : values_(std::move(values)) {}

  void read(const std::string& name, std::string& target);
  void read(const std::string& name, bool& target);
  void read(const std::string& name, double& target, double least, double most);
  /// One string counts as a list of it.
  void read(const std::string& name, std::vector<std::string>& target);
  /// One number counts as a list of it. Throws Error for numbers below 0.
  void read(const std::string& name, std::vector<int64_t>& target);
  /// A string, or a number as Python writes it: "1%" or 0.01.
  void read_text(const std::string& name, std::string& target);

  template <std::integral Number>
  requires(!std::same_as<Number, bool>) void read(
      const std::string& name, Number& target, int64_t least = 0,
      int64_t most = std::numeric_limits<int32_t>::max()) {
    if (const auto value = integer(name, least, most)) target = static_cast<Number>(*value);
  }
  template <class Value, class... Limits>
  void read(const std::string& name, std::optional<Value>& target, Limits... limits) {
    Value value{};
    if (!is_given(name)) return;
    read(name, value, limits...);
    target = value;
  }

  /// A value of any kind, or null.
  Json read_json(const std::string& name);

  bool is_given(const std::string& name) const { return find_field(values_, name) != nullptr; }
  /// Throws Error for an argument that no read has asked for.
  void expect_all_read() const;

 private:
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);

  Json values_;
  std::set<std::string> read_;
};

}  // namespace kvcal
