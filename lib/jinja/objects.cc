#include "jinja/objects.h"

#include <algorithm>
#include <array>

#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// Takes name out of named; missing if it is not there.
Value taken(Run& run, NamedValues& named, std::string_view name) {
  for (size_t i = 0; i < named.size(); ++i) {
    if (!equals(run, Value::text(named[i].first), Value::text(name))) continue;
    run.charge_bytes((named.size() - i) * sizeof(NamedValues::value_type));  // which move up
    const Value value = named[i].second;
    named.erase(named.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return {};
}

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

Value call_macro(Interpreter& interpreter, const Macro& macro, const CallArguments& call) {
  Run& run = interpreter.run();
  const Statement& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const FunctionFrame& function = definition.function;
  const std::string_view name = definition.text.empty() ? "caller" : definition.text;

  auto* activation = run.make<Activation>(run, function.num_slots);
  activation->outer = macro.closure;
  auto named = call.named;
  const auto set = [&](int slot, const Value& value) {
    if (slot >= 0) activation->slots[static_cast<size_t>(slot)] = value;
  };

  size_t i = 0;
  for (; i < parameters.size() && i < call.positional.size(); ++i)
    set(parameters[i].index, call.positional[i]);
  for (; i < parameters.size(); ++i)
    set(parameters[i].index, taken(run, named, parameters[i].name));
  if (function.caller >= 0 && !function.has_caller_parameter) {
    const Value caller = taken(run, named, "caller");
    set(function.caller,
        caller.is_missing() || caller.is_none() ? undefined(run, "No caller defined") : caller);
  }
  if (function.kwargs >= 0)
    set(function.kwargs, make_dict(run, named));
  else if (!named.empty())
    fail("macro ", repr_of(run, name), " takes no keyword argument ",
         repr_of(run, named.front().first));
  if (function.varargs >= 0) {
    const auto first = call.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                     parameters.size(), call.positional.size()));
    set(function.varargs, make_list(run, Values(first, call.positional.end(), run), Type::kTuple));
  } else if (call.positional.size() > parameters.size()) {
    fail("macro ", repr_of(run, name), " takes not more than ", parameters.size(), " argument(s)");
  }
  return interpreter.run_function(definition, activation);
}

Value macro_attribute(Run& run, const Value& value, std::string_view name) {
  const Statement& definition = *value.as<Macro>().definition;
  if (name == "name") return definition.text.empty() ? Value::none() : Value::text(definition.text);
  if (name == "catch_kwargs") return Value::boolean(definition.function.kwargs >= 0);
  if (name == "catch_varargs") return Value::boolean(definition.function.varargs >= 0);
  if (name == "caller") return Value::boolean(definition.function.caller >= 0);
  if (name != "arguments") return {};
  Values names(run);
  for (const Parameter& parameter : definition.parameters)
    names.push_back(Value::text(parameter.name));
  return make_list(run, std::move(names), Type::kTuple);
}

Text macro_repr(Run& run, const Value& value) {
  const std::string_view name = value.as<Macro>().definition->text;
  return "<Macro " + (name.empty() ? run.text("anonymous") : repr_of(run, name)) + ">";
}

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
  known_length = length_of(run, iterable);
  if (known_length) return *known_length;
  Values rest(run);
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

Text loop_repr(Run& run, const Value& self) {
  Loop& loop = self.as<Loop>();
  return run.text("<LoopContext " + std::to_string(loop.index0 + 1) + "/" +
                  std::to_string(loop.length(run)) + ">");
}

}  // namespace kvcal::jinja
