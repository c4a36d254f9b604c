#include <array>
#include <optional>
#include <unordered_set>

#include "jinja/filters.h"
#include "jinja/interpreter.h"
#include "jinja/printing.h"

namespace kvcal::jinja {
namespace {

/// The state of a lazy filter between two items. Jinja2's generators look at their arguments only
/// when the first item is asked for, and so do these.
struct Pending : Object {
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

Pending* make_pending(Run& run, const Value& input, const CallArguments& call) {
  auto* pending = run.make<Pending>();
  pending->input = input;
  pending->call = call;
  return pending;
}

/// A filter or test named by a value, which may be undefined or no text at all.
std::string_view name_in(const Value& name, std::string_view what) {
  if (name.is_undefined())
    fail("No ", what, " named Undefined. (did you forget to quote the callable name?)");
  if (!name.is_string()) fail("the name of a ", what, " must be a str, not ", type_name(name));
  return name.as_text();
}

CallArguments behind(const CallArguments& call, size_t count) {
  CallArguments rest = call;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Value map(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  Pending* pending = make_pending(run, input, call);
  return make_iterator(run, [&interpreter, &run, pending](Value& item) {
    if (!pending->next(run, item)) return false;
    const CallArguments& arguments = pending->call;
    if (!arguments.positional.empty()) {
      item = interpreter.apply_filter(name_in(arguments.positional[0], "filter"), item,
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
Value choose(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  Pending* pending = make_pending(run, input, call);
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
              : interpreter.apply_test(name_in(arguments.positional[kOffset], "test"), judged,
                                       behind(arguments, kOffset + 1));
      if (holds == keeps) return true;
    }
    return false;
  });
}

Value unique(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  struct State : Object {
    State(Run& run, const Value& input, const AttributePath& by) : cursor(run, input), path(by) {}
    Cursor cursor;
    AttributePath path;
    bool is_case_sensitive = false;
    Dict seen;
  };
  const Arguments arguments("unique", call, {"case_sensitive", "attribute"});
  auto* state = run.make<State>(run, input, AttributePath(interpreter, arguments[1]));
  state->is_case_sensitive = arguments.flag(0);
  return make_iterator(run, [&run, state](Value& item) {
    while (state->cursor.next(item)) {
      const Value found = state->path.of(item);
      const Value key = state->is_case_sensitive ? found : folded_case(run, found);
      if (state->seen.find(run, key) != nullptr) continue;
      state->seen.set(run, key, Value::none());
      return true;
    }
    return false;
  });
}

}  // namespace

std::span<const NamedCall> selecting_filters() {
  static constexpr auto kFilters = std::to_array<NamedCall>({{"map", map},
                                                             {"select", choose<true, false>},
                                                             {"reject", choose<false, false>},
                                                             {"selectattr", choose<true, true>},
                                                             {"rejectattr", choose<false, true>},
                                                             {"unique", unique}});
  return kFilters;
}

}  // namespace kvcal::jinja
