#include "jinja/value.h"
#include "jinja/objects.h"

#include <array>

#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// Below this size a dict is searched from its front.
constexpr size_t kIndexedSize = 8;

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

Value undefined(Run& run, std::string_view message) {
  return Value::object(Type::kUndefined, run.make<Undefined>(run.text(message)));
}

Value undefined_name(Run& run, std::string_view name) {
  return undefined(run, repr_of(run, name) + " is undefined");
}

Value undefined_part(Run& run, const Value& owner, const Value& key) {
  if (key.is_string())
    return undefined(run, repr_of(run, object_name(owner)) + " has no attribute " +
                              repr_of(run, run.text_of(key)));
  const std::string shown = key.is(Type::kInt) ? std::to_string(key.as_integer())
                                               : "of type " + std::string(type_name(key));
  return undefined(run, object_name(owner) + " has no element " + shown);
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail(value.as<Undefined>().message);
}

Value make_text(Run& run, Text text) {
  return Value::text(run.keep(std::move(text)));
}

Value make_list(Run& run, Values items, Type type) {
  return Value::object(type, run.make<List>(std::move(items)));
}
Value make_list(Run& run, std::initializer_list<Value> items, Type type) {
  return make_list(run, Values(items, run), type);
}

Value make_dict(Run& run, const NamedValues& named) {
  auto* dict = run.make<Dict>(run);
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

int64_t range_at(const Range& range, int64_t i) {
  return range.start + i * range.step;
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
      Values items(run);
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(run, item));
      return make_list(run, std::move(items));
    }
    case Json::value_t::object: {
      auto* dict = run.make<Dict>(run);
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

template <class IsKey>
const Value* Dict::find_if(uint64_t hash, const IsKey& is_key) const {
  if (entries.size() <= kIndexedSize) {
    for (const auto& [known, value] : entries)
      if (is_key(known)) return &value;
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (is_key(entries[at->second].first)) return &entries[at->second].second;
  return nullptr;
}

const Value* Dict::find(Run& run, const Value& key) const {
  return find_if(hash_of(run, key), [&](const Value& known) { return equals(run, known, key); });
}

const Value* Dict::find(Run& run, std::string_view key) const {
  return find(run, Value::text(key));
}

void Dict::set(Run& run, const Value& key, const Value& value) {
  if (const Value* present = find(run, key)) {
    const_cast<Value&>(*present) = value;
    return;
  }
  entries.emplace_back(key, value);
  if (entries.size() == kIndexedSize + 1)
    for (size_t i = 0; i < kIndexedSize; ++i) index_.emplace(hash_of(run, entries[i].first), i);
  if (entries.size() > kIndexedSize) index_.emplace(hash_of(run, key), entries.size() - 1);
}

bool is_true(const Value& value) {
  switch (value.type()) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.as_integer() != 0;
    case Type::kFloat:
      return value.as_number() != 0.0;
    case Type::kString:
      return value.text_size() != 0;
    default:
      return num_items(value).value_or(1) != 0;
  }
}

bool has_length(const Value& value) {
  return value.is_string() || num_items(value).has_value();
}

std::optional<int64_t> length_of(Run& run, const Value& value) {
  return value.is_string() ? count_code_points(run.text_of(value)) : num_items(value);
}

int64_t required_length(Run& run, const Value& value) {
  const auto found = length_of(run, value);
  if (!found) fail("object of type '", type_name(value), "' has no len()");
  return *found;
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
  Values items(run);
  Cursor cursor(run, value);
  for (Value item; cursor.next(item);) items.push_back(item);
  return items;
}

}  // namespace kvcal::jinja
