#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "jinja/objects.h"

namespace kvcal::jinja {

/// A method, filter or test by name. call is null for one that Python or Jinja2 has and this does
/// not.
struct NamedCall {
  std::string_view name;
  CallMethod call = nullptr;
};

/// The entry of that name, or null.
const NamedCall* find_call(std::span<const NamedCall> calls, std::string_view name);

/// Arguments bound to parameters as Python does. Throws Error, naming the function, for too many,
/// unknown, doubled or missing ones.
class Arguments {
 public:
  Arguments(std::string_view function, const CallArguments& call,
            std::initializer_list<std::string_view> names, size_t num_required = 0);

  bool has(size_t i) const { return !values_[i].is_missing(); }
  /// The argument, or none.
  Value operator[](size_t i) const { return has(i) ? values_[i] : Value::none(); }
  Value value_or(size_t i, const Value& fallback) const { return has(i) ? values_[i] : fallback; }
  /// An int. Throws Error for anything else.
  int64_t integer(size_t i, int64_t fallback = 0) const;
  /// A str. Throws Error for anything else.
  std::string_view text(size_t i, std::string_view fallback = {}) const;
  /// A str or none.
  std::optional<std::string_view> optional_text(size_t i) const;
  bool flag(size_t i, bool fallback = false) const {
    return has(i) ? is_true(values_[i]) : fallback;
  }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<Value> values_;
};

/// Throws Error unless the call has no arguments.
void require_no_arguments(std::string_view function, const CallArguments& call);
/// Throws Error if the call has named arguments, which most methods of Python's types do not take.
void require_positional(std::string_view function, const CallArguments& call);

}  // namespace kvcal::jinja
