#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace kvcal::jinja {

class Interpreter;
struct Call;

/// A function, method, filter or test of Python or Jinja2.
struct Native {
  std::string_view name;
  /// The parameters as Python writes them: "old, new, count=, /". A '=' marks one that may be left
  /// out, a '/' at the end says that none is taken by name, "*items" takes any number of arguments
  /// without names, and "..." leaves them all to the body, which reads `given`.
  std::string_view parameters = {};
  Value (*body)(const Call& call) = nullptr;  ///< null: refused by name
};

/// The entry of that name, or null.
const Native* find_native(std::span<const Native> natives, std::string_view name);

/// One call of a native: its arguments are bound to its parameters as Python does.
struct Call {
  /// Throws Error, naming the native, for too many, unknown, doubled or missing arguments.
  Call(Interpreter& caller, const Native& callee, const Value& owner,
       const CallArguments& arguments);

  bool has(size_t i) const { return i < values.size() && !values[i].is_missing(); }
  /// The argument, or none.
  Value operator[](size_t i) const { return value_or(i, Value::none()); }
  Value value_or(size_t i, const Value& fallback) const { return has(i) ? values[i] : fallback; }
  /// An int. Throws Error for anything else.
  int64_t integer(size_t i, int64_t fallback = 0) const;
  /// self, which must be a str.
  std::string_view self_text() const { return run.text_of(self); }
  /// A str. Throws Error for anything else.
  std::string_view text(size_t i, std::string_view fallback = {}) const;
  /// A str or none.
  std::optional<std::string_view> optional_text(size_t i) const;
  bool flag(size_t i) const { return has(i) && is_true(values[i]); }

  Interpreter& interpreter;
  Run& run;
  const Native& native;
  const Value& self;  ///< before the dot, the bar or `is`; none for a function
  const CallArguments& given;
  std::vector<std::string_view> names = {};
  Values values = {};
};

/// Runs native: the one place where one is called.
Value call_native(Interpreter& interpreter, const Native& native, const Value& self,
                  const CallArguments& given);

/// The members of a type's values by their names, which stand between spaces.
struct TypeMembers {
  Type type;
  std::span<const Native> methods = {};
  std::string_view changing =
      {};  ///< hidden by the immutable sandbox, for they change a list or dict
  std::string_view left_out = {};  ///< Python has them and kvcal has not
};
/// Those of a type, or none.
const TypeMembers& members_of(Type type);
/// owner.name of what is no method: loop.index, macro.name, cycler.current; missing for an unknown
/// name.
Value member_of(Run& run, const Value& owner, std::string_view name);

/// Puts the functions every template may call into globals: range, dict, namespace, cycler, joiner,
/// lipsum (refused), raise_exception, strftime_now.
void add_globals(Run& run, Dict& globals);

/// The filter of that name, or null. Source of all: Jinja2 3.1, filters.py; tojson: transformers,
/// chat_template_utils.py.
const Native* find_filter(std::string_view name);
/// The test of that name (x is name), or null. Source: Jinja2 3.1, tests.py.
const Native* find_test(std::string_view name);

/// The natives of each file; the functions above look names up in them.
std::span<const Native> string_methods();
std::span<const Native> text_filters();
std::span<const Native> sequence_filters();

}  // namespace kvcal::jinja
