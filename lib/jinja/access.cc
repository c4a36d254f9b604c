#include "core/text.h"
#include "jinja/calls.h"
#include "jinja/text_value.h"
#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

Value make_method(Run& run, const Value& self, const Native& native) {
  auto* method = run.make<Bound>();
  method->native = &native;
  method->self = self;
  return Value::object(Type::kMethod, method);
}

Value unsafe(Run& run, const Value& owner, std::string_view name) {
  return undefined(run, "access to attribute " + repr_of(name) + " of " +
                            repr_of(type_name(owner)) + " object is unsafe.");
}

/// "__class__" and its like, which every Python object has and the sandbox hides.
bool is_internal(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
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
  if (owner.is(Type::kRange)) return Value::integer(range_at(owner.as<Range>(), index));
  if (!owner.is_string()) return owner.as<List>().items[static_cast<size_t>(index)];
  const std::string_view text = run.text_of(owner);
  const size_t begin = byte_offset(text, index);
  size_t end = begin;
  next_code_point(text, end);
  return Value::text(text.substr(begin, end - begin), owner.is_markup());
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
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    run.charge_items(1);
    characters.push_back(text.substr(begin, at - begin));
  }
  Text out(run);
  for (int64_t i = 0; i < cut.count; ++i)
    out += characters[static_cast<size_t>(cut.start + i * cut.step)];
  return make_text(run, std::move(out), owner.is_markup());
}

}  // namespace

Value own_attribute(Run& run, const Value& owner, std::string_view name) {
  if (owner.is(Type::kNamespace)) {
    const Value* found = owner.as<Namespace>().attributes.find(run, name);
    if (found == nullptr) return {};
    return name.starts_with("_") ? unsafe(run, owner, name) : *found;
  }
  const TypeMembers& members = members_of(owner.type());
  if (is_internal(name) || has_word(members.changing, name)) return unsafe(run, owner, name);
  if (const Native* native = find_native(members.methods, name))
    return make_method(run, owner, *native);
  if (has_word(members.left_out, name))
    fail(type_name(owner), ".", name, " is not supported in chat templates");
  return member_of(run, owner, name);
}

Value attribute_of(Run& run, const Value& owner, std::string_view name) {
  run.charge();
  require_defined(owner);
  if (Value found = own_attribute(run, owner, name); !found.is_missing()) return found;
  const Value key = Value::text(name);
  if (Value found = own_item(run, owner, key); !found.is_missing()) return found;
  return undefined_part(run, owner, key);
}

Value item_of(Run& run, const Value& owner, const Value& key) {
  run.charge();
  require_defined(owner);
  if (Value found = own_item(run, owner, key); !found.is_missing()) return found;
  if (key.is_string())
    if (Value found = own_attribute(run, owner, run.text_of(key)); !found.is_missing())
      return found;
  return undefined_part(run, owner, key);
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
    if (cut.count == 0) return make_range(run, 0, 0, 1);
    const int64_t start = range_at(range, cut.start);
    int64_t step = 0, stop = 0;
    if (__builtin_mul_overflow(range.step, cut.step, &step) ||
        __builtin_mul_overflow(step, cut.count, &stop) ||
        __builtin_add_overflow(start, stop, &stop))
      fail("a slice of range() is past 64 signed bits");
    return make_range(run, start, stop, step);
  }
  Values items;
  items.reserve(static_cast<size_t>(cut.count));
  for (int64_t i = 0; i < cut.count; ++i)
    items.push_back(owner.as<List>().items[static_cast<size_t>(cut.start + i * cut.step)]);
  return make_list(run, std::move(items), owner.type());
}

}  // namespace kvcal::jinja
