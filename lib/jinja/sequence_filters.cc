#include <algorithm>
#include <array>

#include "jinja/arithmetic.h"
#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

Value length(Interpreter&, const Value& input, const CallArguments& call) {
  require_no_arguments("length", call);
  const auto found = length_of(input);
  if (!found) fail("object of type '", type_name(input), "' has no len()");
  return Value::integer(*found);
}

Value first(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("first", call);
  Cursor cursor(interpreter.run(), input);
  Value item;
  return cursor.next(item) ? item
                           : undefined(interpreter.run(), "No first item, sequence was empty.");
}

Value last(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("last", call);
  if (!length_of(input)) fail("'", type_name(input), "' object is not reversible");
  const std::vector<Value> items = items_of(interpreter.run(), input);
  return items.empty() ? undefined(interpreter.run(), "No last item, sequence was empty.")
                       : items.back();
}

Value list(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("list", call);
  return make_list(interpreter.run(), items_of(interpreter.run(), input));
}

Value join(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("join", call, {"d", "attribute"});
  const AttributePath path(interpreter, arguments[1]);
  const std::string_view separator = text_view(run, arguments.value_or(0, Value::text("")));
  std::string text;
  Cursor cursor(run, input);
  bool is_first = true;
  for (Value item; cursor.next(item); is_first = false) {
    if (!is_first) text += separator;
    print(run, path.of(item), text);
  }
  return make_text(run, std::move(text));
}

Value items(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  require_no_arguments("items", call);
  struct State : Object {
    Value input;
    size_t at = 0;
  };
  auto* state = run.make<State>();
  state->input = input;
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

/// An iterator over a list.
Value walked_once(Run& run, const Value& list) {
  auto* state = run.make<OwnedCursor>(run, list);
  return make_iterator(run, [state](Value& item) { return state->cursor.next(item); });
}

Value reverse(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  require_no_arguments("reverse", call);
  std::vector<Value> all = items_of(run, input);
  std::reverse(all.begin(), all.end());
  if (input.is_string()) {
    std::string text;
    for (const Value& item : all) text += item.as_text();
    return make_text(run, std::move(text));
  }
  const Value reversed = make_list(run, std::move(all));
  if (input.is(Type::kIterator)) return reversed;
  // As Python's reversed: no length, walked once.
  return walked_once(run, reversed);
}

/// Items with the key each is ordered by.
using Keyed = std::vector<std::pair<Value, Value>>;

void sort_by_key(Run& run, Keyed& items, bool is_reversed) {
  // Reversed, Python still keeps equal items in their order.
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return is_reversed ? less(run, b.first, a.first) : less(run, a.first, b.first);
  });
}

Value values_of(Run& run, const Keyed& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const auto& [key, value] : items) values.push_back(value);
  return make_list(run, std::move(values));
}

Value sort(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("sort", call, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (arguments[2].is_string()) {
    std::string_view rest = arguments.text(2);
    for (size_t comma = 0; comma != std::string_view::npos;
         rest.remove_prefix(std::min(comma + 1, rest.size()))) {
      comma = rest.find(',');
      paths.emplace_back(interpreter, Value::text(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
    }
  } else {
    paths.emplace_back(interpreter, arguments[2]);
  }
  Keyed items;
  for (const Value& item : items_of(run, input)) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths)
      keys.push_back(arguments.flag(1) ? path.of(item) : folded_case(run, path.of(item)));
    items.emplace_back(make_list(run, std::move(keys)), item);
  }
  sort_by_key(run, items, arguments.flag(0));
  return values_of(run, items);
}

Value dictsort(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("dictsort", call, {"case_sensitive", "by", "reverse"});
  const std::string_view by = arguments.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  require_defined(input);
  if (!input.is(Type::kDict)) fail("dictsort needs a dict, not ", type_name(input));
  Keyed items;
  for (const auto& [key, value] : input.as<Dict>().entries) {
    const Value& chosen = by == "key" ? key : value;
    items.emplace_back(arguments.flag(0) ? chosen : folded_case(run, chosen),
                       make_list(run, {key, value}, Type::kTuple));
  }
  sort_by_key(run, items, arguments.flag(2));
  return values_of(run, items);
}

template <bool wants_largest>
Value extreme(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments(wants_largest ? "max" : "min", call, {"case_sensitive", "attribute"});
  const AttributePath path(interpreter, arguments[1]);
  Cursor cursor(run, input);
  Value best, best_key;
  for (Value item; cursor.next(item);) {
    const Value key = arguments.flag(0) ? path.of(item) : folded_case(run, path.of(item));
    const bool is_better =
        best.is_missing() || (wants_largest ? less(run, best_key, key) : less(run, key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  return best.is_missing() ? undefined(run, "No aggregated item, sequence was empty.") : best;
}

Value sum(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("sum", call, {"attribute", "start"});
  const AttributePath path(interpreter, arguments[0]);
  Value total = arguments.value_or(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(interpreter.run(), input);
  for (Value item; cursor.next(item);)
    total = arithmetic(interpreter.run(), Operator::kAdd, total, path.of(item));
  return total;
}

Value batch(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("batch", call, {"linecount", "fill_with"}, 1);
  const int64_t size = arguments.integer(0);
  std::vector<Value> batches, current;
  const auto flush = [&] { batches.push_back(make_list(run, std::exchange(current, {}))); };
  for (const Value& item : items_of(run, input)) {
    if (static_cast<int64_t>(current.size()) == size) flush();
    current.push_back(item);
  }
  if (!current.empty()) {
    const auto count = static_cast<int64_t>(current.size());
    if (!arguments[1].is_none() && size > count) {
      const auto missing = static_cast<uint64_t>(size - count);
      run.charge(missing);
      run.charge_memory(missing * sizeof(Value));
      current.insert(current.end(), missing, arguments[1]);
    }
    flush();
  }
  return walked_once(run, make_list(run, std::move(batches)));
}

Value slice(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("slice", call, {"slices", "fill_with"}, 1);
  const int64_t slices = arguments.integer(0);
  const std::vector<Value> all = items_of(run, input);
  const auto length = static_cast<int64_t>(all.size());
  if (slices == 0) fail("integer division or modulo by zero");
  std::vector<Value> result;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    run.charge();
    const bool has_extra = i < length % slices;
    const int64_t end = at + length / slices + (has_extra ? 1 : 0);
    std::vector<Value> part(all.begin() + at, all.begin() + end);
    if (!arguments[1].is_none() && !has_extra) part.push_back(arguments[1]);
    result.push_back(make_list(run, std::move(part)));
    at = end;
  }
  return walked_once(run, make_list(run, std::move(result)));
}

Value groupby(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("groupby", call, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(interpreter, arguments[0],
                           arguments[1].is_none() ? Value() : arguments[1]);
  Keyed items;
  for (const Value& item : items_of(run, input))
    items.emplace_back(arguments.flag(2) ? path.of(item) : folded_case(run, path.of(item)), item);
  sort_by_key(run, items, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin;
    std::vector<Value> members;
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

}  // namespace

std::span<const NamedCall> sequence_filters() {
  static constexpr auto kFilters = std::to_array<NamedCall>({{"length", length},
                                                             {"count", length},
                                                             {"first", first},
                                                             {"last", last},
                                                             {"list", list},
                                                             {"join", join},
                                                             {"items", items},
                                                             {"reverse", reverse},
                                                             {"sort", sort},
                                                             {"dictsort", dictsort},
                                                             {"min", extreme<false>},
                                                             {"max", extreme<true>},
                                                             {"sum", sum},
                                                             {"batch", batch},
                                                             {"slice", slice},
                                                             {"groupby", groupby}});
  return kFilters;
}

}  // namespace kvcal::jinja
