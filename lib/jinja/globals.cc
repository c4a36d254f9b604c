#include <array>
#include <ctime>

#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "jinja/printing.h"

namespace kvcal::jinja {
namespace {

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
  auto* dict = call.run.make<Dict>(call.run);
  fill(call, *dict);
  return Value::object(Type::kDict, dict);
}

Value make_namespace(const Call& call) {
  auto* space = call.run.make<Namespace>(call.run);
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
  fail("the template refuses its input: ", to_text(call.run, call[0]));
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
  return make_text(call.run, call.run.text({buffer.data() + 1, size - 1}));
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

}  // namespace

std::span<const Native> global_functions() {
  static constexpr auto kFunctions =
      std::to_array<Native>({{"range", "start, stop=, step=, /", make_range_of},
                             {"dict", "...", new_dict},
                             {"namespace", "...", make_namespace},
                             {"cycler", "*items", make_cycler},
                             {"joiner", "sep=", make_joiner},
                             {"lipsum", "..."},
                             {"raise_exception", "message", raise_exception},
                             {"strftime_now", "format", strftime_now}});
  return kFunctions;
}

void add_globals(Run& run, Dict& globals) {
  for (const Native& native : global_functions()) {
    auto* function = run.make<Bound>();
    function->native = &native;
    globals.set(run, Value::text(native.name), Value::object(Type::kFunction, function));
  }
}

std::span<const Native> cycler_methods() {
  static constexpr auto kMethods =
      std::to_array<Native>({{"next", "", cycler_next}, {"reset", "", cycler_reset}});
  return kMethods;
}

Value cycler_attribute(const Value& self, std::string_view name) {
  const Cycler& cycler = self.as<Cycler>();
  return name == "current" ? cycler.items[cycler.at] : Value();
}

}  // namespace kvcal::jinja
