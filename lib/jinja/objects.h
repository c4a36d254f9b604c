#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace kvcal::jinja {

/// A list or tuple. A tuple made by groupby also answers to .grouper and .list.
struct List : Object {
  std::vector<Value> items;
  bool is_group = false;
};

/// Keys in the order they came; equal keys are one key, as in Python (1 == 1.0 == true).
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(Run& run, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Run& run, const Value& key, const Value& value);

 private:
  const size_t* position(Run& run, const Value& key, uint64_t hash) const;
  std::unordered_multimap<uint64_t, size_t> index_;
};

struct DictView : Object {
  enum class Part { kKeys, kValues, kItems };
  const Dict* dict = nullptr;
  Part part = Part::kKeys;
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

/// Element i of a range.
int64_t range_at(const Range& range, int64_t i);

struct Iterator : Object {
  std::function<bool(Value&)> next;  ///< false at the end, again and again
};

struct Namespace : Object {
  Dict attributes;
};

/// Jinja2's Undefined: prints as nothing, most other uses are an Error with message.
struct Undefined : Object {
  std::string message;
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};
using CallFunction = Value (*)(Interpreter&, const CallArguments&);
using CallMethod = Value (*)(Interpreter&, const Value& self, const CallArguments&);

struct Function : Object {
  std::string_view name;
  CallFunction call = nullptr;
};
struct Method : Object {
  std::string_view name;
  Value self;
  CallMethod call = nullptr;
};

/// A Cursor that lives as long as its Run, for iterators.
struct OwnedCursor : Object {
  OwnedCursor(Run& run, const Value& source) : cursor(run, source) {}
  Cursor cursor;
};

}  // namespace kvcal::jinja
