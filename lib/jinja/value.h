#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "jinja/run.h"

namespace kvcal::jinja {

enum class Type : uint8_t {
  kMissing,  ///< a variable that has no value yet; expressions never see it
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,  ///< a generator: walked once, without length
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,
  kCycler,
  kJoiner,
};

/// A Python value as templates see them. Small and copied freely; texts and objects belong to the
/// Run, the parsed template or the variables given to it, all of which outlive the rendering.
class Value {
 public:
  Value() = default;
  static Value none() { return Value(Type::kNone); }
  static Value boolean(bool value) { return Value(Type::kBool, value); }
  static Value integer(int64_t value) { return Value(Type::kInt, value); }
  static Value number(double value) {
    Value result(Type::kFloat);
    result.number_ = value;
    return result;
  }
  static Value text(std::string_view value, bool is_markup = false) {
    Value result(Type::kString);
    result.text_ = value.data();
    result.size_ = value.size();
    result.is_markup_ = is_markup;
    return result;
  }
  static Value object(Type type, Object* object) {
    Value result(type);
    result.object_ = object;
    return result;
  }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_missing() const { return type_ == Type::kMissing; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  /// int or bool, which Python counts as an int.
  bool is_integral() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const { return is_integral() || type_ == Type::kFloat; }
  bool is_sequence() const { return type_ == Type::kList || type_ == Type::kTuple; }
  bool is_markup() const { return is_markup_; }

  int64_t as_integer() const { return integer_; }
  /// The number as a float, whatever its type.
  double as_number() const {
    return type_ == Type::kFloat ? number_ : static_cast<double>(integer_);
  }
  /// Bytes of a str.
  size_t text_size() const { return size_; }
  /// Whether both are the same bytes in the same place. For strs only.
  bool is_same_text(const Value& other) const {
    return text_ == other.text_ && size_ == other.size_;
  }
  Object* as_object() const { return object_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  friend class Run;
  friend class Cursor;
  /// Read by those who charge for it.
  std::string_view as_text() const { return {text_, size_}; }
  explicit Value(Type type, int64_t integer = 0) : type_(type), integer_(integer) {}
  Type type_ = Type::kMissing;
  bool is_markup_ = false;
  union {
    int64_t integer_ = 0;
    double number_;
    const char* text_;
    Object* object_;
  };
  size_t size_ = 0;  ///< bytes of the text
};

inline std::string_view Run::text_of(const Value& value) {
  charge_bytes(value.size_);
  return value.as_text();
}

using Values = std::vector<Value>;
using NamedValues = std::vector<std::pair<std::string_view, Value>>;

/// A list or tuple. A tuple made by groupby also answers to .grouper and .list.
struct List : Object {
  explicit List(Values values) : items(std::move(values)) {}
  Values items;
  bool is_group = false;
};

/// Keys in the order they came; equal keys are one key, as in Python (1 == 1.0 == true).
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(Run& run, const Value& key) const;
  const Value* find(Run& run, std::string_view key) const { return find(run, Value::text(key)); }
  void set(Run& run, const Value& key, const Value& value);

 private:
  const Value* find(Run& run, const Value& key, uint64_t hash) const;
  /// Sorted, because keys that share a bucket of a hash table are easily made.
  std::multimap<uint64_t, size_t> index_;
};

struct DictView : Object {
  enum class Part { kKeys, kValues, kItems };
  const Dict* dict = nullptr;
  Part part = Part::kKeys;
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

struct Iterator : Object {
  std::function<bool(Value&)> next;  ///< false at the end, again and again
};

struct Namespace : Object {
  Dict attributes;
};

/// Jinja2's Undefined: prints as nothing, most other uses are an Error with message.
struct Undefined : Object {
  explicit Undefined(std::string text) : message(std::move(text)) {}
  std::string message;
};

struct CallArguments {
  Values positional;
  NamedValues named;
};

struct Native;
/// A function, a method with what it is called on, or a joiner.
struct Bound : Object {
  const Native* native = nullptr;
  Value self = Value::none();
};

/// Variables of the template, a macro's call, a loop, or a block, by the numbers of their names
/// (SyntaxTree::names). A name that has no value here means that of the scope around it.
struct Scope : Object {
  explicit Scope(Scope* around) : outer(around) {}
  Scope* outer = nullptr;
  std::vector<std::pair<int, Value>> variables;
};

struct Statement;
/// A macro, or the body of a call block as `caller`.
struct Macro : Object {
  const Statement* definition = nullptr;
  Scope* closure = nullptr;
};

/// Python's name of a value's type, "str".
std::string_view type_name(const Value& value);

Value undefined(Run& run, std::string message);
/// "'x' is undefined"
Value undefined_name(Run& run, std::string_view name);
/// "'dict object' has no attribute 'x'", "list object has no element 3"
Value undefined_part(Run& run, const Value& owner, const Value& key);
/// Throws the Error of using an undefined value; does nothing for any other.
void require_defined(const Value& value);

Value make_text(Run& run, Text text, bool is_markup = false);
Value make_list(Run& run, Values items, Type type = Type::kList);
Value make_dict(Run& run, const NamedValues& named);
Value make_iterator(Run& run, std::function<bool(Value&)> next);
Value make_range(Run& run, int64_t start, int64_t stop, int64_t step);
/// Element i of a range.
inline int64_t range_at(const Range& range, int64_t i) {
  return range.start + i * range.step;
}
/// A JSON value; strings are viewed, so json must outlive the rendering. Throws Error for text that
/// is not UTF-8 and for integers past 64 signed bits.
Value from_json(Run& run, const Json& json);

bool is_true(const Value& value);
bool equals(Run& run, const Value& a, const Value& b);
/// a is b
bool is_same(const Value& a, const Value& b);
/// a < b. Throws Error where Python has no order, as between a text and a number.
bool less(Run& run, const Value& a, const Value& b);
/// item in container
bool contains(Run& run, const Value& container, const Value& item);
/// hash(value), equal for equal values. Throws Error for lists and dicts.
uint64_t hash_of(Run& run, const Value& value);
bool is_hashable(Run& run, const Value& value);
/// Whether Python's len takes value.
bool has_length(const Value& value);
/// len(value), or nothing where Python has none.
std::optional<int64_t> length_of(Run& run, const Value& value);

/// Walks any iterable value once.
class Cursor {
 public:
  /// Throws Error for what Python cannot iterate over.
  Cursor(Run& run, const Value& source);
  bool next(Value& item);

 private:
  Run* run_;
  Value source_;
  size_t at_ = 0;
};
bool is_iterable(const Value& value);
/// list(value)
Values items_of(Run& run, const Value& value);

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

}  // namespace kvcal::jinja
