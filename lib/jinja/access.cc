#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

Value make_method(Run& run, const Value& self, const Native& native) {
  if (native.body == nullptr)
    fail(type_name(self), ".", native.name, " is not supported in chat templates");
  auto* method = run.make<Bound>();
  method->native = &native;
  method->self = self;
  return Value::object(Type::kMethod, method);
}

Value unsafe(Run& run, const Value& owner, std::string_view name) {
  return undefined(run, "access to attribute " + repr_of(run, name) + " of " +
                            repr_of(run, type_name(owner)) + " object is unsafe.");
}

/// "__class__" and its like, which every Python object has and the sandbox hides.
bool is_internal(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

bool changes_owner(const Value& owner, std::string_view name) {
  return (owner.is(Type::kList) && changes_list(name)) ||
         (owner.is(Type::kDict) && changes_dict(name));
}

/// owner[key] alone; missing where Python raises TypeError or LookupError.
Value own_item(Run& run, const Value& owner, const Value& key) {
  if (owner.is(Type::kDict)) {
    if (!is_hashable(run, key)) return {};
    const Value* found = owner.as<Dict>().find(run, key);
    return found != nullptr ? *found : Value();
  }
  if (!key.is_integral()) return {};
  int64_t index = key.as_integer();
  const auto length = length_of(run, owner);
  if (!length || owner.is(Type::kDictView)) return {};
  if (index < 0) index += *length;
  if (index < 0 || index >= *length) return {};
  switch (owner.type()) {
    case Type::kString: {
      const std::string_view text = run.text_of(owner);
      const size_t begin = byte_offset(text, index);
      size_t end = begin;
      next_code_point(text, end);
      return Value::text(text.substr(begin, end - begin), owner.is_markup());
    }
    case Type::kRange:
      return Value::integer(range_at(owner.as<Range>(), index));
    default:
      return owner.as<List>().items[static_cast<size_t>(index)];
  }
}

/// One bound of a slice: an int or none.
int64_t slice_part(const Value& part, int64_t fallback) {
  if (part.is_none()) return fallback;
  require_defined(part);
  if (!part.is_integral()) fail("slice indices must be integers or None, not ", type_name(part));
  return part.as_integer();
}

struct Cut {
  int64_t start = 0, step = 1, count = 0;
};

/// Source: CPython, Objects/sliceobject.c, PySlice_AdjustIndices.
Cut cut_of(int64_t length, const Value& start_part, const Value& stop_part,
           const Value& step_part) {
  const int64_t step = slice_part(step_part, 1);
  if (step == 0) fail("slice step cannot be zero");
  if (step == INT64_MIN) fail("slice step is out of range");
  const auto adjusted = [&](const Value& part, int64_t fallback) {
    if (part.is_none()) return fallback;
    int64_t at = slice_part(part, 0);
    if (at < 0) {
      at += length;
      if (at < 0) at = step < 0 ? -1 : 0;
    } else if (at >= length) {
      at = step < 0 ? length - 1 : length;
    }
    return at;
  };
  const int64_t start = adjusted(start_part, step < 0 ? length - 1 : 0);
  const int64_t stop = adjusted(stop_part, step < 0 ? -1 : length);
  Cut cut{.start = start, .step = step};
  if (step > 0 && start < stop) cut.count = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) cut.count = (start - stop - 1) / -step + 1;
  return cut;
}

Value slice_of_text(Run& run, const Value& owner, const Cut& cut) {
  const std::string_view text = run.text_of(owner);
  if (cut.step == 1) {
    const size_t begin = byte_offset(text, cut.start);
    const size_t end = begin + byte_offset(text.substr(begin), cut.count);
    return Value::text(text.substr(begin, end - begin), owner.is_markup());
  }
  const Vector<char32_t> characters = code_points(run, text);
  Text out = run.text();
  for (int64_t i = 0; i < cut.count; ++i)
    append_code_point(out, characters[static_cast<size_t>(cut.start + i * cut.step)]);
  return Value::text(run.keep(std::move(out)), owner.is_markup());
}

}  // namespace

Value own_attribute(Interpreter& interpreter, const Value& owner, std::string_view name) {
  Run& run = interpreter.run();
  if (owner.is(Type::kNamespace)) {
    const Value* found = owner.as<Namespace>().attributes.find(run, name);
    if (found == nullptr) return {};
    return name.starts_with("_") ? unsafe(run, owner, name) : *found;
  }
  if (is_internal(name) || changes_owner(owner, name)) return unsafe(run, owner, name);
  if (const Native* native = find_native(methods_of(owner.type()), name))
    return make_method(run, owner, *native);
  switch (owner.type()) {
    case Type::kLoop:
      return loop_attribute(run, owner, name);
    case Type::kMacro:
      return macro_attribute(run, owner, name);
    case Type::kCycler:
      return cycler_attribute(owner, name);
    case Type::kTuple: {
      const List& tuple = owner.as<List>();
      if (tuple.is_group && name == "grouper") return tuple.items[0];
      if (tuple.is_group && name == "list") return tuple.items[1];
      return {};
    }
    case Type::kRange: {
      const Range& range = owner.as<Range>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      return {};
    }
    default:
      return {};
  }
}

Value attribute_of(Interpreter& interpreter, const Value& owner, std::string_view name) {
  interpreter.run().charge();
  require_defined(owner);
  if (Value found = own_attribute(interpreter, owner, name); !found.is_missing()) return found;
  const Value key = Value::text(name);
  if (Value found = own_item(interpreter.run(), owner, key); !found.is_missing()) return found;
  return undefined_part(interpreter.run(), owner, key);
}

Value item_of(Interpreter& interpreter, const Value& owner, const Value& key) {
  interpreter.run().charge();
  require_defined(owner);
  if (Value found = own_item(interpreter.run(), owner, key); !found.is_missing()) return found;
  if (key.is_string())
    if (Value found = own_attribute(interpreter, owner, interpreter.run().text_of(key));
        !found.is_missing())
      return found;
  return undefined_part(interpreter.run(), owner, key);
}

Value slice_of(Run& run, const Value& owner, const Value& start, const Value& stop,
               const Value& step) {
  require_defined(owner);
  const bool is_sliceable = owner.is_string() || owner.is_sequence() || owner.is(Type::kRange);
  if (!is_sliceable) fail("'", type_name(owner), "' object cannot be sliced");
  const int64_t length = *length_of(run, owner);
  const Cut cut = cut_of(length, start, stop, step);
  if (owner.is_string()) return slice_of_text(run, owner, cut);
  if (owner.is(Type::kRange)) {
    const Range& range = owner.as<Range>();
    // In 128 bits nothing overflows on the way; the outcome may still not fit.
    using Wide = __int128;
    const Wide step = Wide{range.step} * cut.step;
    const Wide start = range.start + Wide{range.step} * cut.start, stop = start + step * cut.count;
    for (const Wide part : {start, stop, step})
      if (part > INT64_MAX || part < INT64_MIN) fail("a slice of range() is past 64 signed bits");
    return make_range(run, static_cast<int64_t>(start), static_cast<int64_t>(stop),
                      static_cast<int64_t>(step));
  }
  Values items(run);
  items.reserve(static_cast<size_t>(cut.count));
  for (int64_t i = 0; i < cut.count; ++i)
    items.push_back(owner.as<List>().items[static_cast<size_t>(cut.start + i * cut.step)]);
  return make_list(run, std::move(items), owner.type());
}

}  // namespace kvcal::jinja
