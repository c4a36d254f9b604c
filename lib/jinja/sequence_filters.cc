#include <algorithm>
#include <array>
#include <optional>

#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"
#include "jinja/splitting.h"

namespace kvcal::jinja {
namespace {

/// Looks up a dotted path such as "function.name", whose numbers are indices; an empty path for
/// none.
class AttributePath {
 public:
  /// path: a str, an int or none; fallback, if not missing, stands in for parts that are undefined.
  AttributePath(Interpreter& interpreter, const Value& path, const Value& fallback = {})
      : interpreter_(interpreter), parts_(interpreter.run()), fallback_(fallback) {
    if (path.is_none()) return;
    if (!path.is_string()) {
      parts_.push_back(path);
      return;
    }
    Run& run = interpreter.run();
    for (const Value& piece : split_text(run, run.text_of(path), ".", -1, false)) {
      const std::string_view part = run.text_of(piece);
      const bool is_index = !part.empty() && part.size() < 10 &&
                            part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_index ? Value::integer(std::stoll(std::string(part)))
                                : Value::text(part));
    }
  }

  Value of(const Value& item) const {
    Value value = item;
    for (const Value& part : parts_) {
      value = item_of(interpreter_, value, part);
      if (value.is_undefined() && !fallback_.is_missing()) value = fallback_;
    }
    return value;
  }

 private:
  Interpreter& interpreter_;
  Values parts_;
  Value fallback_;
};

/// The key that items are compared by: what path finds, texts in lower case unless case counts.
Value key_of(Run& run, const Value& found, bool is_case_sensitive) {
  if (is_case_sensitive || !found.is_string()) return found;
  return make_text(run, to_lower(run, run.text_of(found)));
}

Value length(const Call& call) {
  return Value::integer(required_length(call.run, call.self));
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
  const AttributePath path(call.interpreter, call[1]);
  const std::string_view separator = text_view(call.run, call.value_or(0, Value::text("")));
  Text text = call.run.text();
  Cursor cursor(call.run, call.self);
  bool is_first = true;
  for (Value item; cursor.next(item); is_first = false) {
    if (!is_first) {
      call.run.check_size(text.size() + separator.size());
      text += separator;
    }
    print(call.run, path.of(item), text);
  }
  return make_text(call.run, std::move(text));
}

Value items(const Call& call) {
  struct State : Object {
    Value input;
    size_t at = 0;
  };
  Run& run = call.run;
  auto* state = run.make<State>();
  state->input = call.self;
  return make_iterator(run, [&run, state](Value& item) {
    if (state->input.is_undefined()) return false;
    if (!state->input.is(Type::kDict)) fail("Can only get item pairs from a mapping.");
    const auto& entries = state->input.as<Dict>().entries;
    if (state->at >= entries.size()) return false;
    const auto& [key, value] = entries[state->at++];
    item = make_list(run, {key, value}, Type::kTuple);
    return true;
  });
}

/// An iterator over items.
Value walked_once(Run& run, Values items) {
  struct State : Object {
    State(Run& run, const Value& source) : cursor(run, source) {}
    Cursor cursor;
  };
  auto* state = run.make<State>(run, make_list(run, std::move(items)));
  return make_iterator(run, [state](Value& item) { return state->cursor.next(item); });
}

Value reverse(const Call& call) {
  Values all = items_of(call.run, call.self);
  std::reverse(all.begin(), all.end());
  if (call.self.is_string()) {
    Text text = call.run.text();
    for (const Value& item : all) text += call.run.text_of(item);
    return make_text(call.run, std::move(text));
  }
  if (call.self.is(Type::kIterator)) return make_list(call.run, std::move(all));
  // As Python's reversed: no length, walked once.
  return walked_once(call.run, std::move(all));
}

/// Items with the key each is ordered by.
using Keyed = Vector<std::pair<Value, Value>>;

void sort_by_key(Run& run, Keyed& items, bool is_reversed) {
  // Reversed, Python still keeps equal items in their order.
  sort_stably(run, items, [&](const auto& a, const auto& b) {
    return is_reversed ? less(run, b.first, a.first) : less(run, a.first, b.first);
  });
}

Value sorted(Run& run, Keyed items, bool is_reversed) {
  sort_by_key(run, items, is_reversed);
  Values values(run);
  values.reserve(items.size());
  for (const auto& [key, value] : items) values.push_back(value);
  return make_list(run, std::move(values));
}

Value sort(const Call& call) {
  Vector<AttributePath> paths(call.run);
  if (call[2].is_string()) {
    for (const Value& path : split_text(call.run, call.text(2), ",", -1, false))
      paths.emplace_back(call.interpreter, path);
  } else {
    paths.emplace_back(call.interpreter, call[2]);
  }
  Keyed items(call.run);
  for (const Value& item : items_of(call.run, call.self)) {
    Values keys(call.run);
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
  Keyed items(call.run);
  for (const auto& [key, value] : call.self.as<Dict>().entries)
    items.emplace_back(key_of(call.run, by == "key" ? key : value, call.flag(0)),
                       make_list(call.run, {key, value}, Type::kTuple));
  return sorted(call.run, std::move(items), call.flag(2));
}

template <bool wants_largest>
Value extreme(const Call& call) {
  const AttributePath path(call.interpreter, call[1]);
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
  const AttributePath path(call.interpreter, call[0]);
  Value total = call.value_or(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(call.run, call.self);
  for (Value item; cursor.next(item);)
    total = arithmetic(call.run, Operator::kAdd, total, path.of(item));
  return total;
}

Value batch(const Call& call) {
  const int64_t size = call.integer(0);
  Values batches(call.run), current(call.run);
  const auto flush = [&] {
    batches.push_back(make_list(call.run, std::exchange(current, Values(call.run))));
  };
  for (const Value& item : items_of(call.run, call.self)) {
    if (static_cast<int64_t>(current.size()) == size) flush();
    current.push_back(item);
  }
  if (!current.empty()) {
    const auto count = static_cast<int64_t>(current.size());
    if (!call[1].is_none() && size > count) {
      const auto missing = static_cast<uint64_t>(size - count);
      call.run.charge(missing);
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
  Values result(call.run);
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    call.run.charge();
    const bool has_extra = i < length % slices;
    const int64_t end = at + length / slices + (has_extra ? 1 : 0);
    Values part(all.begin() + at, all.begin() + end, call.run);
    if (!call[1].is_none() && !has_extra) part.push_back(call[1]);
    result.push_back(make_list(call.run, std::move(part)));
    at = end;
  }
  return walked_once(call.run, std::move(result));
}

Value groupby(const Call& call) {
  Run& run = call.run;
  const AttributePath path(call.interpreter, call[0], call[1].is_none() ? Value() : call[1]);
  Keyed items(run);
  for (const Value& item : items_of(run, call.self))
    items.emplace_back(key_of(run, path.of(item), call.flag(2)), item);
  sort_by_key(run, items, false);
  Values groups(run);
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin;
    Values members(run);
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

/// The state of a lazy filter between two items. Jinja2's generators look at their arguments only
/// when the first item is asked for, and so do these.
struct Pending : Object {
  Pending(const Value& source, const CallArguments& arguments) : input(source), call(arguments) {}
  Value input;
  CallArguments call;
  std::optional<Cursor> cursor;
  bool is_done = false;

  /// The next input item; an input that is false is empty, whatever it is.
  bool next(Run& run, Value& item) {
    if (is_done) return false;
    if (!cursor) {
      if (!is_true(input)) {
        is_done = true;
        return false;
      }
      cursor.emplace(run, input);
    }
    is_done = !cursor->next(item);
    return !is_done;
  }
};

Pending* make_pending(const Call& call) {
  return call.run.make<Pending>(call.self, call.given);
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
  Interpreter& interpreter = call.interpreter;
  Run& run = call.run;
  Pending* pending = make_pending(call);
  return make_iterator(run, [&interpreter, &run, pending](Value& item) {
    if (!pending->next(run, item)) return false;
    const CallArguments& arguments = pending->call;
    if (!arguments.positional.empty()) {
      item = interpreter.apply_filter(name_in(run, arguments.positional[0], "filter"), item,
                                      behind(arguments, 1));
      return true;
    }
    Value attribute, fallback;
    for (const auto& [name, value] : arguments.named) {
      if (name == "attribute")
        attribute = value;
      else if (name == "default")
        fallback = value.is_none() ? Value() : value;
      else
        fail("Unexpected keyword argument '", name, "'");
    }
    if (attribute.is_missing()) fail("map requires a filter argument");
    item = AttributePath(interpreter, attribute, fallback).of(item);
    return true;
  });
}

/// select, reject, selectattr, rejectattr.
template <bool keeps, bool has_attribute>
Value choose(const Call& call) {
  Interpreter& interpreter = call.interpreter;
  Run& run = call.run;
  Pending* pending = make_pending(call);
  return make_iterator(run, [&interpreter, &run, pending](Value& item) {
    constexpr size_t kOffset = has_attribute ? 1 : 0;
    const CallArguments& arguments = pending->call;
    while (pending->next(run, item)) {
      if (has_attribute && arguments.positional.empty())
        fail("Missing parameter for attribute name");
      const Value judged =
          has_attribute ? AttributePath(interpreter, arguments.positional[0]).of(item) : item;
      const bool holds =
          arguments.positional.size() <= kOffset
              ? is_true(judged)
              : interpreter.apply_test(name_in(run, arguments.positional[kOffset], "test"), judged,
                                       behind(arguments, kOffset + 1));
      if (holds == keeps) return true;
    }
    return false;
  });
}

Value unique(const Call& call) {
  struct State : Object {
    State(const Call& call)
        : cursor(call.run, call.self), path(call.interpreter, call[1]), seen(call.run) {}
    Cursor cursor;
    AttributePath path;
    Dict seen;
  };
  Run& run = call.run;
  auto* state = run.make<State>(call);
  return make_iterator(run, [&run, state, is_case_sensitive = call.flag(0)](Value& item) {
    while (state->cursor.next(item)) {
      const Value key = key_of(run, state->path.of(item), is_case_sensitive);
      if (state->seen.find(run, key) != nullptr) continue;
      state->seen.set(run, key, Value::none());
      return true;
    }
    return false;
  });
}

}  // namespace

std::span<const Native> sequence_filters() {
  static constexpr auto kFilters =
      std::to_array<Native>({{"length", "", length},
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
                             {"unique", "case_sensitive=, attribute=", unique}});
  return kFilters;
}

}  // namespace kvcal::jinja
