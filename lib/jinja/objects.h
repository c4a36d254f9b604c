#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace kvcal::jinja {

/// A list or tuple. A tuple made by groupby also answers to .grouper and .list.
struct List : Object {
  explicit List(Values values) : items(std::move(values)) {}
  Values items;
  bool is_group = false;
};

/// Keys in the order they came; equal keys are one key, as in Python (1 == 1.0 == true).
struct Dict : Object {
  explicit Dict(Run& run) : entries(run), index_(run) {}
  Vector<std::pair<Value, Value>> entries;

  const Value* find(Run& run, const Value& key) const;
  const Value* find(Run& run, std::string_view key) const;
  void set(Run& run, const Value& key, const Value& value);

 private:
  template <class IsKey>
  const Value* find_if(uint64_t hash, const IsKey& is_key) const;
  /// Sorted, because keys that share a bucket of a hash table are easily made.
  std::multimap<uint64_t, size_t, std::less<>, Metered<std::pair<const uint64_t, size_t>>> index_;
};

struct DictView : Object {
  enum class Part { kKeys, kValues, kItems };
  const Dict* dict = nullptr;
  Part part = Part::kKeys;
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

/// Element i of a range.
int64_t range_at(const Range& range, int64_t i);

struct Iterator : Object {
  std::function<bool(Value&)> next;  ///< false at the end, again and again
};

struct Namespace : Object {
  explicit Namespace(Run& run) : attributes(run) {}
  Dict attributes;
};

/// Jinja2's Undefined: prints as nothing, most other uses are an Error with message.
struct Undefined : Object {
  explicit Undefined(Text text) : message(std::move(text)) {}
  Text message;
};

using NamedValues = Vector<std::pair<std::string_view, Value>>;
Value make_dict(Run& run, const NamedValues& named);

struct CallArguments {
  explicit CallArguments(Run& run) : positional(run), named(run) {}
  Values positional;
  NamedValues named;
};

struct Native;
/// A function, a method with what it is called on, or a joiner.
struct Bound : Object {
  const Native* native = nullptr;
  Value self = Value::none();
};

/// One call of a template's function: its variables, and the call it was defined in.
struct Activation : Object {
  Activation(Run& run, int num_slots) : slots(static_cast<size_t>(num_slots), Value(), run) {}
  Activation* outer = nullptr;
  Values slots;
};

struct Statement;
/// A macro, or the body of a call block as `caller`.
struct Macro : Object {
  const Statement* definition = nullptr;
  Activation* closure = nullptr;
};

/// The text of a call: arguments bound by Jinja2's rules for macros, not Python's for functions.
/// Source: Jinja2 3.1, runtime.py, Macro.__call__.
Value call_macro(Interpreter& interpreter, const Macro& macro, const CallArguments& call);
/// macro.name and its kin; missing for an unknown name.
Value macro_attribute(Run& run, const Value& value, std::string_view name);
Text macro_repr(Run& run, const Value& value);

/// The `loop` of a for. Looks one item ahead when asked for last or nextitem.
/// Source: Jinja2 3.1, runtime.py, LoopContext.
struct Loop : Object {
  Loop(Run& run, const Value& source) : iterable(source), cursor(run, source) {}

  /// Moves to the next item; false at the end.
  bool advance(Value& item);
  bool peek(Value& item);
  int64_t length(Run& run);

  Value iterable;
  Cursor cursor;
  int64_t index0 = -1;
  Value current, before;
  std::optional<Value> after;
  std::optional<int64_t> known_length;
  std::optional<Value> last_changed;
};

/// loop.index and its kin; missing for an unknown name.
Value loop_attribute(Run& run, const Value& self, std::string_view name);
Text loop_repr(Run& run, const Value& self);

}  // namespace kvcal::jinja
