#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "jinja/calls.h"

namespace kvcal::jinja {

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
std::span<const NamedCall> loop_methods();
std::string loop_repr(Run& run, const Value& self);

}  // namespace kvcal::jinja
