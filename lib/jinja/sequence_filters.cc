#include <algorithm>

#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {
namespace {

/// Looks up a dotted path such as "function.name", whose numbers are indices; an empty path for
/// none.
class AttributePath {
 public:
  /// path: a str, an int or none; fallback, if not missing, stands in for parts that are undefined.
  explicit AttributePath(Run& run, const Value& path, const Value& fallback = {})
      : run_(&run), fallback_(fallback) {
    if (path.is_none()) return;
    if (!path.is_string()) {
      parts_.push_back(path);
      return;
    }
    for (const Value& piece : split_text(run, run.text_of(path), ".")) {
      const std::string_view part = run.text_of(piece);
      const auto index = short_index(part);
      parts_.push_back(index ? Value::integer(*index) : Value::text(part));
    }
  }

  Value of(const Value& item) const {
    Value value = item;
    for (const Value& part : parts_) {
      value = item_of(*run_, value, part);
      if (value.is_undefined() && !fallback_.is_missing()) value = fallback_;
    }
    return value;
  }

 private:
  Run* run_;
  Values parts_;
  Value fallback_;
};

/// The key that items are compared by: what path finds, texts in lower case unless case counts.
Value key_of(Run& run, const Value& found, bool is_case_sensitive) {
  if (is_case_sensitive || !found.is_string()) return found;
  return make_text(run, recased(run, run.text_of(found), Casing::kLower));
}

Value length(const Call& call) {
  const auto found = length_of(call.run, call.self);
  if (!found) fail("object of type '", type_name(call.self), "' has no len()");
  return Value::integer(*found);
}

Value first(const Call& call) {
  Cursor cursor(call.run, call.self);
  Value item;
  return cursor.next(item) ? item : undefined(call.run, "No first item, sequence was empty.");
}

Value last(const Call& call) {
  if (!has_length(call.self)) fail("'", type_name(call.self), "' object is not reversible");
  const Values items = items_of(call.run, call.self);
  return items.empty() ? undefined(call.run, "No last item, sequence was empty.") : items.back();
}

Value list(const Call& call) {
  return make_list(call.run, items_of(call.run, call.self));
}

Value join(const Call& call) {
  const AttributePath path(call.run, call[1]);
  const std::string_view separator = text_view(call.run, call.value_or(0, Value::text("")));
  Text text(call.run);
  Cursor cursor(call.run, call.self);
  bool is_first = true;
  for (Value item; cursor.next(item); is_first = false) {
    if (!is_first) text += separator;
    print(call.run, path.of(item), text);
  }
  return make_text(call.run, std::move(text));
}

struct Walk : Object {
  Walk(Run& run, const Value& source) : cursor(run, source) {}
  Cursor cursor;
};

/// An iterator over items.
Value walked_once(Run& run, Values items) {
  auto* walk = run.make<Walk>(run, make_list(run, std::move(items)));
  return make_iterator(run, [walk](Value& item) { return walk->cursor.next(item); });
}

Value items(const Call& call) {
  if (call.self.is_undefined()) return walked_once(call.run, {});
  if (!call.self.is(Type::kDict)) fail("Can only get item pairs from a mapping.");
  Values pairs;
  for (const auto& [key, value] : call.self.as<Dict>().entries)
    pairs.push_back(make_list(call.run, {key, value}, Type::kTuple));
  return walked_once(call.run, std::move(pairs));
}

Value reverse(const Call& call) {
  Values all = items_of(call.run, call.self);
  std::reverse(all.begin(), all.end());
  if (call.self.is_string()) {
    Text text(call.run);
    for (const Value& item : all) text += call.run.text_of(item);
    return make_text(call.run, std::move(text));
  }
  if (call.self.is(Type::kIterator)) return make_list(call.run, std::move(all));
  // As Python's reversed: no length, walked once.
  return walked_once(call.run, std::move(all));
}

/// Items with the key each is ordered by.
using Keyed = std::vector<std::pair<Value, Value>>;

void sort_by_key(Run& run, Keyed& items, bool is_reversed) {
  // Reversed, Python still keeps equal items in their order.
  std::ranges::stable_sort(items, [&](const auto& a, const auto& b) {
    return is_reversed ? less(run, b.first, a.first) : less(run, a.first, b.first);
  });
}

Value sorted(Run& run, Keyed items, bool is_reversed) {
  sort_by_key(run, items, is_reversed);
  Values values;
  values.reserve(items.size());
  for (const auto& [key, value] : items) values.push_back(value);
  return make_list(run, std::move(values));
}

Value sort(const Call& call) {
  std::vector<AttributePath> paths;
  if (call[2].is_string()) {
    for (const Value& path : split_text(call.run, call.text(2), ","))
      paths.emplace_back(call.run, path);
  } else {
    paths.emplace_back(call.run, call[2]);
  }
  Keyed items;
  for (const Value& item : items_of(call.run, call.self)) {
    Values keys;
    for (const AttributePath& path : paths)
      keys.push_back(key_of(call.run, path.of(item), call.flag(1)));
    items.emplace_back(make_list(call.run, std::move(keys)), item);
  }
  return sorted(call.run, std::move(items), call.flag(0));
}

Value dictsort(const Call& call) {
  const std::string_view by = call.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  require_defined(call.self);
  if (!call.self.is(Type::kDict)) fail("dictsort needs a dict, not ", type_name(call.self));
  Keyed items;
  for (const auto& [key, value] : call.self.as<Dict>().entries)
    items.emplace_back(key_of(call.run, by == "key" ? key : value, call.flag(0)),
                       make_list(call.run, {key, value}, Type::kTuple));
  return sorted(call.run, std::move(items), call.flag(2));
}

template <bool wants_largest>
Value extreme(const Call& call) {
  const AttributePath path(call.run, call[1]);
  Cursor cursor(call.run, call.self);
  Value best, best_key;
  for (Value item; cursor.next(item);) {
    const Value key = key_of(call.run, path.of(item), call.flag(0));
    const bool is_better = best.is_missing() || (wants_largest ? less(call.run, best_key, key)
                                                               : less(call.run, key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? undefined(call.run, "No aggregated item, sequence was empty.") : best;
}

Value sum(const Call& call) {
  const AttributePath path(call.run, call[0]);
  Value total = call.value_or(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(call.run, call.self);
  for (Value item; cursor.next(item);)
    total = arithmetic(call.run, Operator::kAdd, total, path.of(item));
  return total;
}

Value batch(const Call& call) {
  const int64_t size = call.integer(0);
  Values batches, current;
  const auto flush = [&] { batches.push_back(make_list(call.run, std::exchange(current, {}))); };
  for (const Value& item : items_of(call.run, call.self)) {
    if (static_cast<int64_t>(current.size()) == size) flush();
    current.push_back(item);
  }
  if (!current.empty()) {
    const auto count = static_cast<int64_t>(current.size());
    if (!call[1].is_none() && size > count) {
      const auto missing = static_cast<uint64_t>(size - count);
      call.run.charge(missing);
      call.run.charge_items(missing);
      current.insert(current.end(), missing, call[1]);
    }
    flush();
  }
  return walked_once(call.run, std::move(batches));
}

Value slice(const Call& call) {
  const int64_t slices = call.integer(0);
  const Values all = items_of(call.run, call.self);
  const auto length = static_cast<int64_t>(all.size());
  if (slices == 0) fail("integer division or modulo by zero");
  Values result;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    call.run.charge();
    const bool has_extra = i < length % slices;
    const int64_t end = at + length / slices + (has_extra ? 1 : 0);
    Values part(all.begin() + at, all.begin() + end);
    if (!call[1].is_none() && !has_extra) part.push_back(call[1]);
    result.push_back(make_list(call.run, std::move(part)));
    at = end;
  }
  return walked_once(call.run, std::move(result));
}

Value groupby(const Call& call) {
  Run& run = call.run;
  const AttributePath path(call.run, call[0], call[1].is_none() ? Value() : call[1]);
  Keyed items;
  for (const Value& item : items_of(run, call.self))
    items.emplace_back(key_of(run, path.of(item), call.flag(2)), item);
  sort_by_key(run, items, false);
  Values groups;
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin;
    Values members;
    for (; end < items.size() && equals(run, items[begin].first, items[end].first); ++end)
      members.push_back(items[end].second);
    const Value grouper = path.of(items[begin].second);
    const Value group = make_list(run, {grouper, make_list(run, std::move(members))}, Type::kTuple);
    group.as<List>().is_group = true;
    groups.push_back(group);
    begin = std::max(end, begin + 1);  // a key that does not equal itself is a group of its own
  }
  return make_list(run, std::move(groups));
}

/// The items that take keeps, as it leaves them, each looked at when it is asked for: a generator
/// of Jinja2. An input that is false is empty, whatever it is.
Value lazily(const Call& call, std::function<bool(Value&)> take) {
  if (!is_true(call.self)) return walked_once(call.run, {});
  auto* cursor = call.run.make<Walk>(call.run, call.self);
  return make_iterator(call.run, [cursor, take = std::move(take)](Value& item) {
    while (cursor->cursor.next(item))
      if (take(item)) return true;
    return false;
  });
}

/// A filter or test named by a value, which may be undefined or no text at all.
std::string_view name_in(Run& run, const Value& name, std::string_view what) {
  if (name.is_undefined())
    fail("No ", what, " named Undefined. (did you forget to quote the callable name?)");
  if (!name.is_string()) fail("the name of a ", what, " must be a str, not ", type_name(name));
  return run.text_of(name);
}

CallArguments behind(const CallArguments& call, size_t count) {
  CallArguments rest = call;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Value map(const Call& call) {
  const auto take = [&interpreter = call.interpreter, given = call.given](Value& item) {
    if (!given.positional.empty()) {
      item = interpreter.apply_filter(name_in(interpreter.run(), given.positional[0], "filter"),
                                      item, behind(given, 1));
      return true;
    }
    Value attribute, fallback;
    for (const auto& [name, value] : given.named) {
      if (name != "attribute" && name != "default")
        fail("Unexpected keyword argument '", name, "'");
      if (name == "attribute") attribute = value;
      if (name == "default" && !value.is_none()) fallback = value;
    }
    if (attribute.is_missing()) fail("map requires a filter argument");
    item = AttributePath(interpreter.run(), attribute, fallback).of(item);
    return true;
  };
  return lazily(call, take);
}

/// select, reject, selectattr, rejectattr.
template <bool keeps, bool has_attribute>
Value choose(const Call& call) {
  const auto take = [&interpreter = call.interpreter, given = call.given](Value& item) {
    constexpr size_t kOffset = has_attribute ? 1 : 0;
    if (given.positional.size() < kOffset) fail("Missing parameter for attribute name");
    Run& run = interpreter.run();
    const Value judged = has_attribute ? AttributePath(run, given.positional[0]).of(item) : item;
    if (given.positional.size() == kOffset) return is_true(judged) == keeps;
    return interpreter.apply_test(name_in(run, given.positional[kOffset], "test"), judged,
                                  behind(given, kOffset + 1)) == keeps;
  };
  return lazily(call, take);
}

Value unique(const Call& call) {
  const AttributePath path(call.run, call[1]);
  Dict seen;
  Values found;
  Cursor cursor(call.run, call.self);
  for (Value item; cursor.next(item);) {
    const Value key = key_of(call.run, path.of(item), call.flag(0));
    if (seen.find(call.run, key) != nullptr) continue;
    seen.set(call.run, key, Value::none());
    found.push_back(item);
  }
  return walked_once(call.run, std::move(found));
}

}  // namespace

std::span<const Native> sequence_filters() {
  static constexpr Native kFilters[] = {
      {"length", "", length},
      {"count", "", length},
      {"first", "", first},
      {"last", "", last},
      {"list", "", list},
      {"join", "d=, attribute=", join},
      {"items", "", items},
      {"reverse", "", reverse},
      {"sort", "reverse=, case_sensitive=, attribute=", sort},
      {"dictsort", "case_sensitive=, by=, reverse=", dictsort},
      {"min", "case_sensitive=, attribute=", extreme<false>},
      {"max", "case_sensitive=, attribute=", extreme<true>},
      {"sum", "attribute=, start=", sum},
      {"batch", "linecount, fill_with=", batch},
      {"slice", "slices, fill_with=", slice},
      {"groupby", "attribute, default=, case_sensitive=", groupby},
      {"map", "...", map},
      {"select", "...", choose<true, false>},
      {"reject", "...", choose<false, false>},
      {"selectattr", "...", choose<true, true>},
      {"rejectattr", "...", choose<false, true>},
      {"unique", "case_sensitive=, attribute=", unique},
  };
  return kFilters;
}

}  // namespace kvcal::jinja
