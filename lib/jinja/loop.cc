#include "jinja/loop.h"

#include <array>

#include "jinja/interpreter.h"

namespace kvcal::jinja {
namespace {

Value cycle(Interpreter&, const Value& self, const CallArguments& call) {
  require_positional("loop.cycle", call);
  if (call.positional.empty()) fail("no items for cycling given");
  const auto index = static_cast<size_t>(self.as<Loop>().index0);
  return call.positional[index % call.positional.size()];
}

Value changed(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("loop.changed", call);
  Loop& loop = self.as<Loop>();
  const Value value = make_list(interpreter.run(), call.positional, Type::kTuple);
  const bool is_same_as_before =
      loop.last_changed.has_value() && equals(interpreter.run(), *loop.last_changed, value);
  loop.last_changed = value;
  return Value::boolean(!is_same_as_before);
}

}  // namespace

bool Loop::advance(Value& item) {
  if (after) {
    item = *after;
    after.reset();
  } else if (!cursor.next(item)) {
    return false;
  }
  ++index0;
  before = current;
  current = item;
  return true;
}

bool Loop::peek(Value& item) {
  if (!after) {
    Value next;
    if (!cursor.next(next)) return false;
    after = next;
  }
  item = *after;
  return true;
}

int64_t Loop::length(Run& run) {
  if (known_length) return *known_length;
  known_length = length_of(iterable);
  if (known_length) return *known_length;
  std::vector<Value> rest;
  for (Value item; cursor.next(item);) rest.push_back(item);
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after ? 1 : 0);
  cursor = Cursor(run, make_list(run, std::move(rest)));
  return *known_length;
}

Value loop_attribute(Run& run, const Value& self, std::string_view name) {
  Loop& loop = self.as<Loop>();
  Value item;
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek(item));
  if (name == "length") return Value::integer(loop.length(run));
  if (name == "revindex") return Value::integer(loop.length(run) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.length(run) - loop.index0 - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return loop.index0 == 0 ? undefined(run, "there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek(item) ? item : undefined(run, "there is no next item");
  return {};
}

std::span<const NamedCall> loop_methods() {
  static constexpr std::array<NamedCall, 2> kMethods{{{"cycle", cycle}, {"changed", changed}}};
  return kMethods;
}

std::string loop_repr(Run& run, const Value& self) {
  Loop& loop = self.as<Loop>();
  return "<LoopContext " + std::to_string(loop.index0 + 1) + "/" +
         std::to_string(loop.length(run)) + ">";
}

}  // namespace kvcal::jinja
