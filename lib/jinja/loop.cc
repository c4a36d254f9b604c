#include <array>

#include "jinja/calls.h"

namespace kvcal::jinja {
namespace {

Value cycle(const Call& call) {
  const auto& items = call.given.positional;
  if (items.empty()) fail("no items for cycling given");
  return items[static_cast<size_t>(call.self.as<Loop>().index0) % items.size()];
}

Value changed(const Call& call) {
  auto& last = call.self.as<Loop>().last_changed;
  const Value value = make_list(call.run, call.given.positional, Type::kTuple);
  const bool is_changed = !last || !equals(call.run, *last, value);
  last = value;
  return Value::boolean(is_changed);
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

std::span<const Native> loop_methods() {
  static constexpr auto kMethods =
      std::to_array<Native>({{"cycle", "*items", cycle}, {"changed", "*value", changed}});
  return kMethods;
}

std::string loop_repr(Run& run, const Value& self) {
  Loop& loop = self.as<Loop>();
  return "<LoopContext " + std::to_string(loop.index0 + 1) + "/" +
         std::to_string(loop.length(run)) + ">";
}

}  // namespace kvcal::jinja
