#include <cmath>
#include <compare>

#include "jinja/objects.h"
#include "jinja/operators.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// Exact, as Python compares an int with a float: the int is never rounded.
std::partial_ordering integer_to_float(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 0x1p63) return std::partial_ordering::less;
  if (b < -0x1p63) return std::partial_ordering::greater;
  const double whole = std::floor(b);
  const std::partial_ordering order = a <=> static_cast<int64_t>(whole);
  return order == 0 && whole < b ? std::partial_ordering::less : order;
}

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() <=> b.as_integer();
  if (a.is_integral()) return integer_to_float(a.as_integer(), b.as_number());
  if (b.is_integral()) return 0 <=> integer_to_float(b.as_integer(), a.as_number());
  return a.as_number() <=> b.as_number();
}

bool holds(Operator op, std::partial_ordering order) {
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

/// Python looks at the objects before their values.
bool is_same_or_equal(Run& run, const Value& a, const Value& b) {
  run.charge();
  return is_same(a, b) || equals(run, a, b);
}

bool equal_items(Run& run, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!is_same_or_equal(run, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Run& run, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(run, key);
    if (other == nullptr || !equals(run, value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.length != b.length) return false;
  if (a.length == 0) return true;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

bool contains_key(Run& run, const DictView& view, const Value& item) {
  if (view.part == DictView::Part::kKeys) return view.dict->find(run, item) != nullptr;
  const Values* pair = item.is(Type::kTuple) ? &item.as<List>().items : nullptr;
  const bool is_pair = pair != nullptr && pair->size() == 2;
  for (const auto& [key, value] : view.dict->entries) {
    run.charge();
    if (view.part == DictView::Part::kValues) {
      if (equals(run, value, item)) return true;
    } else if (is_pair && is_same_or_equal(run, pair->front(), key) &&
               is_same_or_equal(run, pair->back(), value)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_same(const Value& a, const Value& b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kMissing:
    case Type::kNone:
      return true;
    case Type::kBool:
    case Type::kInt:
      return a.as_integer() == b.as_integer();
    case Type::kFloat:
      return false;
    case Type::kString:
      return a.is_same_text(b);
    default:
      return a.as_object() == b.as_object();
  }
}

bool equals(Run& run, const Value& a, const Value& b) {
  const Depth depth(run);
  run.charge();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
      return true;
    case Type::kString:
      return a.text_size() == b.text_size() && run.text_of(a) == run.text_of(b);
    case Type::kList:
    case Type::kTuple:
      return equal_items(run, a.as<List>().items, b.as<List>().items);
    case Type::kDict:
      return equal_dicts(run, a.as<Dict>(), b.as<Dict>());
    case Type::kRange:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    case Type::kDictView:
    case Type::kMethod:
      fail("comparing values of type '", type_name(a), "' is not supported");
    default:
      return is_same(a, b);
  }
}

namespace {

/// a < b and its kin.
bool in_order(Run& run, Operator op, const Value& a, const Value& b) {
  const Depth depth(run);
  run.charge();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return holds(op, compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    // UTF-8 sorts as its code points do, when bytes are unsigned: string_view's traits compare so.
    return holds(op, run.text_of(a) <=> run.text_of(b));
  }
  if (a.is_sequence() && a.type() == b.type()) {
    const auto& left = a.as<List>().items;
    const auto& right = b.as<List>().items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i)
      if (!is_same_or_equal(run, left[i], right[i])) return in_order(run, op, left[i], right[i]);
    return holds(op, left.size() <=> right.size());
  }
  fail("'", symbol_of(op), "' not supported between instances of '", type_name(a), "' and '",
       type_name(b), "'");
}

}  // namespace

bool less(Run& run, const Value& a, const Value& b) {
  return in_order(run, Operator::kLess, a, b);
}

bool compare(Run& run, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return equals(run, a, b);
    case Operator::kNotEqual:
      return !equals(run, a, b);
    case Operator::kIn:
      return contains(run, b, a);
    case Operator::kNotIn:
      return !contains(run, b, a);
    default:
      return in_order(run, op, a, b);
  }
}

bool contains(Run& run, const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::kString:
      if (!item.is_string())
        fail("'in <string>' requires string as left operand, not ", type_name(item));
      return Finder(run, run.text_of(item)).find(run.text_of(container)) != std::string_view::npos;
    case Type::kDict:
      return container.as<Dict>().find(run, item) != nullptr;
    case Type::kDictView:
      return contains_key(run, container.as<DictView>(), item);
    default:
      break;
  }
  if (!is_iterable(container))
    fail("argument of type '", type_name(container), "' is not iterable");
  Cursor cursor(run, container);
  for (Value candidate; cursor.next(candidate);)
    if (is_same_or_equal(run, candidate, item)) return true;
  return false;
}

bool is_hashable(Run& run, const Value& value) {
  const Depth depth(run);
  run.charge();
  if (value.is(Type::kTuple)) {
    for (const Value& item : value.as<List>().items)
      if (!is_hashable(run, item)) return false;
  }
  return !value.is(Type::kList) && !value.is(Type::kDict) && !value.is(Type::kDictView);
}

uint64_t hash_of(Run& run, const Value& value) {
  const Depth depth(run);
  run.charge();
  const auto hash_integer = [](int64_t integer) { return std::hash<int64_t>{}(integer); };
  switch (value.type()) {
    case Type::kBool:
    case Type::kInt:
      return hash_integer(value.as_integer());
    case Type::kFloat: {
      const double number = value.as_number();
      if (number == std::floor(number) && std::abs(number) < 0x1p63)
        return hash_integer(static_cast<int64_t>(number));
      return std::hash<double>{}(number);
    }
    case Type::kString:
      return std::hash<std::string_view>{}(run.text_of(value));
    case Type::kTuple: {
      uint64_t hash = 0x345678;
      for (const Value& item : value.as<List>().items) hash = hash * 1000003 + hash_of(run, item);
      return hash;
    }
    case Type::kRange:
      return hash_integer(value.as<Range>().length);
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return static_cast<uint64_t>(value.type());
    case Type::kList:
    case Type::kDict:
    case Type::kDictView:
      fail("unhashable type: '", type_name(value), "'");
    default:
      return std::hash<const Object*>{}(value.as_object());
  }
}

}  // namespace kvcal::jinja
