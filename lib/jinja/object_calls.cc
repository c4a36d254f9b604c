// What templates call and read on lists, dicts, loops, macros and cyclers; the global functions.
#include <algorithm>
#include <array>
#include <ctime>

#include "jinja/calls.h"
#include "jinja/interpreter.h"

namespace kvcal::jinja {
namespace {

Value index_of(const Call& call) {
  const auto& items = call.self.as<List>().items;
  const auto length = static_cast<int64_t>(items.size());
  const auto bound = [&](int64_t at) { return std::max<int64_t>(at < 0 ? at + length : at, 0); };
  const int64_t stop = std::min(bound(call.integer(2, length)), length);
  for (int64_t i = bound(call.integer(1)); i < stop; ++i)
    if (equals(call.run, items[static_cast<size_t>(i)], call[0])) return Value::integer(i);
  fail(std::string_view(to_repr(call.run, call[0])), " is not in ", type_name(call.self));
}

Value count_of(const Call& call) {
  return Value::integer(std::ranges::count_if(call.self.as<List>().items, [&](const Value& item) {
    return equals(call.run, item, call[0]);
  }));
}

Value copy_list(const Call& call) {
  return make_list(call.run, call.self.as<List>().items);
}

Value copy_dict(const Call& call) {
  auto* copy = call.run.make<Dict>();
  for (const auto& [key, value] : call.self.as<Dict>().entries) copy->set(call.run, key, value);
  return Value::object(Type::kDict, copy);
}

Value get(const Call& call) {
  const Value* found = call.self.as<Dict>().find(call.run, call[0]);
  return found != nullptr ? *found : call[1];
}

template <DictView::Part part>
Value view(const Call& call) {
  auto* object = call.run.make<DictView>();
  object->dict = &call.self.as<Dict>();
  object->part = part;
  return Value::object(Type::kDictView, object);
}

Value cycle(const Call& call) {
  const auto& items = call.given.positional;
  if (items.empty()) fail("no items for cycling given");
  return items[static_cast<size_t>(call.self.as<Loop>().index0) % items.size()];
}

Value changed(const Call& call) {
  auto& last = call.self.as<Loop>().last_changed;
  const Value value = make_list(call.run, call.given.positional, Type::kTuple);
  const bool is_changed = !last || !equals(call.run, *last, value);
  last = value;
  return Value::boolean(is_changed);
}

/// Source: Jinja2 3.1, sandbox.py, MAX_RANGE.
constexpr int64_t kMaxRange = 100'000;

struct Cycler : Object {
  explicit Cycler(const Values& values) : items(values) {}
  Values items;
  size_t at = 0;
};
struct Joiner : Bound {
  Value separator;
  bool is_used = false;
};

Value make_range_of(const Call& call) {
  const bool has_start = call.has(1);
  const int64_t first = call.integer(0), start = has_start ? first : 0;
  const int64_t stop = has_start ? call.integer(1) : first, step = call.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const Value range = make_range(call.run, start, stop, step);
  if (range.as<Range>().length > kMaxRange)
    fail("Range too big. The sandbox blocks ranges larger than ", kMaxRange, ".");
  return range;
}

/// dict(mapping or pairs, name=value, …)
void fill(const Call& call, Dict& dict) {
  const auto& [positional, named] = call.given;
  const std::string_view function = call.native.name;
  if (positional.size() > 1) fail(function, "() takes at most one positional argument");
  if (!positional.empty()) {
    const Value& source = positional[0];
    require_defined(source);
    if (source.is(Type::kDict)) {
      for (const auto& [key, value] : source.as<Dict>().entries) dict.set(call.run, key, value);
    } else {
      for (const Value& pair : items_of(call.run, source)) {
        const Values parts = items_of(call.run, pair);
        if (parts.size() != 2) fail(function, "() needs pairs, found ", parts.size(), " items");
        dict.set(call.run, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : named) dict.set(call.run, Value::text(name), value);
}

Value new_dict(const Call& call) {
  auto* dict = call.run.make<Dict>();
  fill(call, *dict);
  return Value::object(Type::kDict, dict);
}

Value make_namespace(const Call& call) {
  auto* space = call.run.make<Namespace>();
  fill(call, space->attributes);
  return Value::object(Type::kNamespace, space);
}

Value make_cycler(const Call& call) {
  if (call.given.positional.empty()) fail("at least one item has to be provided");
  auto* cycler = call.run.make<Cycler>(call.given.positional);
  return Value::object(Type::kCycler, cycler);
}

Value join_next(const Call& call) {
  const bool is_first = !std::exchange(call.self.as<Joiner>().is_used, true);
  return is_first ? Value::text("") : call.self.as<Joiner>().separator;
}

Value make_joiner(const Call& call) {
  static constexpr Native kNext{"joiner", "", join_next};
  auto* joiner = call.run.make<Joiner>();
  joiner->separator = call.value_or(0, Value::text(", "));
  joiner->native = &kNext;
  return joiner->self = Value::object(Type::kJoiner, joiner);
}

Value raise_exception(const Call& call) {
  fail("the template refuses its input: ", std::string_view(to_text(call.run, call[0])));
}

/// The directives that a time without zone and below seconds does not have are resolved here, as
/// Python's datetime does; the rest is the C library's.
std::string prepared_format(std::string_view format) {
  std::string prepared;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      prepared += format[at];
      continue;
    }
    const char directive = format[++at];
    if (directive == 'f') prepared += "000000";
    if (directive != 'f' && directive != 'z' && directive != 'Z')
      prepared += std::string("%") + directive;
  }
  return prepared;
}

Value strftime_now(const Call& call) {
  const std::string_view format = call.text(0);
  if (format.size() > 1000)
    fail("strftime_now() takes formats of up to 1000 bytes, found ", format.size());
  call.run.charge(format.size());  // a directive takes far longer than other text
  // One byte more in front tells an empty result from a buffer that was too small.
  const std::string prepared = "." + prepared_format(format);
  const std::tm time = call.interpreter.local_time();
  std::array<char, 16384> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), prepared.c_str(), &time);
  if (size == 0) fail("strftime_now() gives more than ", buffer.size(), " bytes");
  return make_text(call.run, Text(call.run, {buffer.data() + 1, size - 1}));
}

Value cycler_next(const Call& call) {
  Cycler& cycler = call.self.as<Cycler>();
  const Value current = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(const Call& call) {
  call.self.as<Cycler>().at = 0;
  return Value::none();
}

Value member_of(Run& run, Loop& loop, std::string_view name) {
  Value item;
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek(item));
  if (name == "length") return Value::integer(loop.length(run));
  if (name == "revindex") return Value::integer(loop.length(run) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.length(run) - loop.index0 - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return loop.index0 == 0 ? undefined(run, "there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek(item) ? item : undefined(run, "there is no next item");
  return {};
}

Value member_of(Run& run, const Macro& macro, std::string_view name) {
  const Statement& definition = *macro.definition;
  if (name == "name") return definition.text.empty() ? Value::none() : Value::text(definition.text);
  if (name == "catch_kwargs") return Value::boolean(definition.reads_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition.reads_varargs);
  if (name == "caller") return Value::boolean(definition.reads_caller);
  if (name != "arguments") return {};
  Values names;
  for (const Parameter& parameter : definition.parameters)
    names.push_back(Value::text(parameter.text));
  return make_list(run, std::move(names), Type::kTuple);
}

constexpr Native kListMethods[] = {{"index", "value, start=, stop=, /", index_of},
                                   {"count", "value, /", count_of},
                                   {"copy", "", copy_list}};
constexpr Native kDictMethods[] = {{"items", "", view<DictView::Part::kItems>},
                                   {"keys", "", view<DictView::Part::kKeys>},
                                   {"values", "", view<DictView::Part::kValues>},
                                   {"get", "key, default=, /", get},
                                   {"copy", "", copy_dict}};
constexpr Native kLoopMethods[] = {{"cycle", "*items", cycle}, {"changed", "*value", changed}};
constexpr Native kCyclerMethods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
constexpr Native kFunctions[] = {{"range", "start, stop=, step=, /", make_range_of},
                                 {"dict", "...", new_dict},
                                 {"namespace", "...", make_namespace},
                                 {"cycler", "*items", make_cycler},
                                 {"joiner", "sep=", make_joiner},
                                 {"lipsum", "..."},
                                 {"raise_exception", "message", raise_exception},
                                 {"strftime_now", "format", strftime_now}};

}  // namespace

void add_globals(Run& run, Dict& globals) {
  for (const Native& native : kFunctions) {
    auto* function = run.make<Bound>();
    function->native = &native;
    globals.set(run, Value::text(native.name), Value::object(Type::kFunction, function));
  }
}

const TypeMembers& members_of(Type type) {
  constexpr std::string_view kOfNumbers =
      "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag "
      "is_integer numerator real to_bytes";
  // Source of those that change their owner: Jinja2 3.1, sandbox.py, _mutable_spec.
  static const TypeMembers kTypes[] = {
      {.type = Type::kString,
       .methods = string_methods(),
       .left_out = "casefold encode expandtabs format_map isascii isdecimal isidentifier isnumeric "
                   "isprintable istitle maketrans swapcase translate zfill"},
      {.type = Type::kList,
       .methods = kListMethods,
       .changing = "append clear pop reverse insert sort extend remove"},
      {.type = Type::kTuple, .methods = std::span(kListMethods).first(2)},
      {.type = Type::kDict,
       .methods = kDictMethods,
       .changing = "clear pop popitem setdefault update",
       .left_out = "fromkeys"},
      {.type = Type::kDictView, .left_out = "isdisjoint mapping"},
      {.type = Type::kRange, .left_out = "count index start step stop"},
      {.type = Type::kLoop, .methods = kLoopMethods},
      {.type = Type::kCycler, .methods = kCyclerMethods},
      {.type = Type::kBool, .left_out = kOfNumbers},
      {.type = Type::kInt, .left_out = kOfNumbers},
      {.type = Type::kFloat, .left_out = kOfNumbers},
  };
  const auto* found = std::ranges::find(kTypes, type, &TypeMembers::type);
  static const TypeMembers kNone{.type = Type::kMissing};
  return found == std::end(kTypes) ? kNone : *found;
}

Value member_of(Run& run, const Value& owner, std::string_view name) {
  if (owner.is(Type::kLoop)) return member_of(run, owner.as<Loop>(), name);
  if (owner.is(Type::kMacro)) return member_of(run, owner.as<Macro>(), name);
  if (owner.is(Type::kCycler) && name == "current")
    return owner.as<Cycler>().items[owner.as<Cycler>().at];
  if (!owner.is(Type::kTuple) || !owner.as<List>().is_group) return {};
  const Values& parts = owner.as<List>().items;
  return name == "grouper" ? parts[0] : name == "list" ? parts[1] : Value();
}

}  // namespace kvcal::jinja
