#include "jinja/value.h"

#include <array>
#include <cmath>
#include <compare>

#include "jinja/text_value.h"
#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

/// "dict object": how Jinja2 names the owner of a missing attribute.
std::string object_name(const Value& owner) {
  if (owner.is_none()) return "None";
  return std::string(type_name(owner)) + " object";
}

/// How many items a container has; nothing for other values.
std::optional<int64_t> num_items(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kList:
    case Type::kTuple:
      return static_cast<int64_t>(value.as<List>().items.size());
    case Type::kDict:
      return static_cast<int64_t>(value.as<Dict>().entries.size());
    case Type::kDictView:
      return static_cast<int64_t>(value.as<DictView>().dict->entries.size());
    case Type::kRange:
      return value.as<Range>().length;
    default:
      return std::nullopt;
  }
}

/// Ints are compared with floats exactly, as Python does: long double holds 64 bits.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  const auto exact = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.as_integer())
                               : static_cast<long double>(value.as_number());
  };
  return exact(a) <=> exact(b);
}

bool holds(Operator op, std::partial_ordering order) {
  if (op == Operator::kLess) return order < 0;
  if (op == Operator::kLessEqual) return order <= 0;
  return op == Operator::kGreater ? order > 0 : order >= 0;
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

std::string_view type_name(const Value& value) {
  // The order is that of Type; kDictView has a name for each part.
  constexpr auto kNames = std::to_array<std::string_view>(
      {"missing",     "Undefined", "NoneType", "bool",      "int",    "float",     "str",
       "list",        "tuple",     "dict",     "dict_keys", "range",  "generator", "Namespace",
       "LoopContext", "Macro",     "function", "method",    "Cycler", "Joiner"});
  constexpr std::array<std::string_view, 3> kViews{"dict_keys", "dict_values", "dict_items"};
  static_assert(kNames.size() == static_cast<size_t>(Type::kJoiner) + 1);
  if (value.is(Type::kDictView)) return kViews[static_cast<size_t>(value.as<DictView>().part)];
  return value.is_markup() ? "Markup" : kNames[static_cast<size_t>(value.type())];
}

Value undefined(Run& run, std::string message) {
  run.charge_memory(message.size());
  return Value::object(Type::kUndefined, run.make<Undefined>(std::move(message)));
}

Value undefined_name(Run& run, std::string_view name) {
  return undefined(run, repr_of(name) + " is undefined");
}

Value undefined_part(Run& run, const Value& owner, const Value& key) {
  if (key.is_string())
    return undefined(
        run, repr_of(object_name(owner)) + " has no attribute " + repr_of(run.text_of(key)));
  const std::string shown = key.is(Type::kInt) ? std::to_string(key.as_integer())
                                               : "of type " + std::string(type_name(key));
  return undefined(run, object_name(owner) + " has no element " + shown);
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail(value.as<Undefined>().message);
}

Value make_text(Run& run, Text text, bool is_markup) {
  return Value::text(run.keep(std::move(text)), is_markup);
}

Value make_list(Run& run, Values items, Type type) {
  run.charge_items(items.size());
  return Value::object(type, run.make<List>(std::move(items)));
}

Value make_dict(Run& run, const NamedValues& named) {
  auto* dict = run.make<Dict>();
  for (const auto& [name, value] : named) dict->set(run, Value::text(name), value);
  return Value::object(Type::kDict, dict);
}

Value make_iterator(Run& run, std::function<bool(Value&)> next) {
  auto* iterator = run.make<Iterator>();
  iterator->next = std::move(next);
  return Value::object(Type::kIterator, iterator);
}

Value make_range(Run& run, int64_t start, int64_t stop, int64_t step) {
  auto* range = run.make<Range>();
  range->start = start;
  range->stop = stop;
  range->step = step;
  // In 128 bits no difference overflows.
  using Wide = __int128;
  const Wide distance = step > 0 ? Wide{stop} - start : Wide{start} - stop;
  const Wide stride = step > 0 ? Wide{step} : -Wide{step};
  const Wide length = distance > 0 ? (distance + stride - 1) / stride : 0;
  if (length > INT64_MAX) fail("range() of more than 64-bit length");
  range->length = static_cast<int64_t>(length);
  return Value::object(Type::kRange, range);
}

Value from_json(Run& run, const Json& json) {
  const Depth depth(run);
  run.charge();
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX)
        fail("integer ", json.dump(), " is past 64 signed bits");
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::number(json.get<double>());
    case Json::value_t::string: {
      const std::string_view text = json.get_ref<const std::string&>();
      run.charge_bytes(text.size());
      if (!utf8::is_valid(text)) fail("a variable holds text that is not UTF-8");
      return Value::text(text);
    }
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(run, item));
      return make_list(run, std::move(items));
    }
    case Json::value_t::object: {
      auto* dict = run.make<Dict>();
      for (const auto& [key, item] : json.get_ref<const Json::object_t&>()) {
        if (!utf8::is_valid(key)) fail("a variable has a key that is not UTF-8");
        dict->set(run, Value::text(key), from_json(run, item));
      }
      return Value::object(Type::kDict, dict);
    }
    default:
      return Value::none();
  }
}

const Value* Dict::find(Run& run, const Value& key, uint64_t hash) const {
  const auto [first, last] = index_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (equals(run, entries[at->second].first, key)) return &entries[at->second].second;
  return nullptr;
}

const Value* Dict::find(Run& run, const Value& key) const {
  return find(run, key, hash_of(run, key));
}

void Dict::set(Run& run, const Value& key, const Value& value) {
  const uint64_t hash = hash_of(run, key);
  if (const Value* present = find(run, key, hash)) {
    const_cast<Value&>(*present) = value;
    return;
  }
  run.charge_items(4);  // two values and their place in the index
  index_.emplace(hash, entries.size());
  entries.emplace_back(key, value);
}

bool is_true(const Value& value) {
  if (value.is_missing() || value.is_none()) return false;
  if (value.is_number()) return value.as_number() != 0.0;
  if (value.is_string()) return value.text_size() != 0;
  return num_items(value).value_or(1) != 0;
}

bool has_length(const Value& value) {
  return value.is_string() || num_items(value).has_value();
}

std::optional<int64_t> length_of(Run& run, const Value& value) {
  return value.is_string() ? count_code_points(run.text_of(value)) : num_items(value);
}

bool is_iterable(const Value& value) {
  return value.is(Type::kIterator) || value.is(Type::kLoop) || has_length(value);
}

Cursor::Cursor(Run& run, const Value& source) : run_(&run), source_(source) {
  if (source.is(Type::kLoop)) fail("walking over `loop` itself is not supported");
  if (!is_iterable(source)) fail("'", type_name(source), "' object is not iterable");
}

bool Cursor::next(Value& item) {
  run_->charge();
  const size_t at = at_;
  switch (source_.type()) {
    case Type::kIterator: {
      const Depth depth(*run_);
      return source_.as<Iterator>().next(item);
    }
    case Type::kString: {
      // Paid by the item: each is read once.
      const std::string_view text = source_.as_text();
      if (at >= text.size()) return false;
      next_code_point(text, at_);
      item = Value::text(text.substr(at, at_ - at));
      return true;
    }
    case Type::kList:
    case Type::kTuple:
      if (at >= source_.as<List>().items.size()) return false;
      item = source_.as<List>().items[at];
      break;
    case Type::kDict:
      if (at >= source_.as<Dict>().entries.size()) return false;
      item = source_.as<Dict>().entries[at].first;
      break;
    case Type::kDictView: {
      const DictView& view = source_.as<DictView>();
      if (at >= view.dict->entries.size()) return false;
      const auto& [key, value] = view.dict->entries[at];
      if (view.part == DictView::Part::kItems)
        item = make_list(*run_, {key, value}, Type::kTuple);
      else
        item = view.part == DictView::Part::kKeys ? key : value;
      break;
    }
    case Type::kRange:
      if (static_cast<int64_t>(at) >= source_.as<Range>().length) return false;
      item = Value::integer(range_at(source_.as<Range>(), static_cast<int64_t>(at)));
      break;
    default:
      return false;
  }
  ++at_;
  return true;
}

Values items_of(Run& run, const Value& value) {
  Values items;
  Cursor cursor(run, value);
  for (Value item; cursor.next(item);) {
    run.charge_items(1);
    items.push_back(item);
  }
  return items;
}

bool is_same(const Value& a, const Value& b) {
  if (a.type() != b.type() || a.is(Type::kFloat)) return false;
  if (a.is_missing() || a.is_none()) return true;
  if (a.is_integral()) return a.as_integer() == b.as_integer();
  return a.is_string() ? a.is_same_text(b) : a.as_object() == b.as_object();
}

bool equals(Run& run, const Value& a, const Value& b) {
  const Depth depth(run);
  run.charge();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  if (a.is_undefined()) return true;
  if (a.is_string()) return a.text_size() == b.text_size() && run.text_of(a) == run.text_of(b);
  if (a.is_sequence()) return equal_items(run, a.as<List>().items, b.as<List>().items);
  if (a.is(Type::kDict)) return equal_dicts(run, a.as<Dict>(), b.as<Dict>());
  if (a.is(Type::kRange)) return equal_items(run, items_of(run, a), items_of(run, b));
  if (a.is(Type::kDictView) || a.is(Type::kMethod))
    fail("comparing values of type '", type_name(a), "' is not supported");
  return is_same(a, b);
}

bool less(Run& run, const Value& a, const Value& b) {
  return in_order(run, Operator::kLess, a, b);
}

bool compare(Run& run, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kEqual || op == Operator::kNotEqual)
    return equals(run, a, b) == (op == Operator::kEqual);
  if (op == Operator::kIn || op == Operator::kNotIn)
    return contains(run, b, a) == (op == Operator::kIn);
  return in_order(run, op, a, b);
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string())
      fail("'in <string>' requires string as left operand, not ", type_name(item));
    return place_of(run, run.text_of(container), run.text_of(item)).has_value();
  }
  if (container.is(Type::kDict)) return container.as<Dict>().find(run, item) != nullptr;
  if (container.is(Type::kDictView) && container.as<DictView>().part == DictView::Part::kKeys)
    return container.as<DictView>().dict->find(run, item) != nullptr;
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
  Values rest = items_of(run, iterable);
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after ? 1 : 0);
  cursor = Cursor(run, make_list(run, std::move(rest)));
  return *known_length;
}

}  // namespace kvcal::jinja
