#include "jinja/globals.h"

#include <array>
#include <ctime>

#include "jinja/interpreter.h"
#include "jinja/printing.h"

namespace kvcal::jinja {
namespace {

/// Source: Jinja2 3.1, sandbox.py, MAX_RANGE.
constexpr int64_t kMaxRange = 100'000;

struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Joiner : Object {
  Value separator;
  bool is_used = false;
};

Value make_range_of(Interpreter& interpreter, const CallArguments& call) {
  require_positional("range", call);
  const size_t count = call.positional.size();
  if (count == 0 || count > 3) fail("range() takes 1 to 3 arguments, ", count, " were given");
  const Arguments arguments("range", call, {"start", "stop", "step"});
  const int64_t first = arguments.integer(0);
  const int64_t start = count == 1 ? 0 : first, stop = count == 1 ? first : arguments.integer(1);
  const int64_t step = arguments.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const Value range = make_range(interpreter.run(), start, stop, step);
  if (range.as<Range>().length > kMaxRange)
    fail("Range too big. The sandbox blocks ranges larger than ", kMaxRange, ".");
  return range;
}

/// dict(mapping or pairs, name=value, …)
void fill(Run& run, Dict& dict, std::string_view function, const CallArguments& call) {
  if (call.positional.size() > 1) fail(function, "() takes at most one positional argument");
  if (!call.positional.empty()) {
    const Value& source = call.positional[0];
    require_defined(source);
    if (source.is(Type::kDict)) {
      for (const auto& [key, value] : source.as<Dict>().entries) dict.set(run, key, value);
    } else {
      for (const Value& pair : items_of(run, source)) {
        const std::vector<Value> parts = items_of(run, pair);
        if (parts.size() != 2) fail(function, "() needs pairs, found ", parts.size(), " items");
        dict.set(run, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : call.named) dict.set(run, Value::text(name), value);
}

Value make_dict(Interpreter& interpreter, const CallArguments& call) {
  auto* dict = interpreter.run().make<Dict>();
  fill(interpreter.run(), *dict, "dict", call);
  return Value::object(Type::kDict, dict);
}

Value make_namespace(Interpreter& interpreter, const CallArguments& call) {
  auto* space = interpreter.run().make<Namespace>();
  fill(interpreter.run(), space->attributes, "namespace", call);
  return Value::object(Type::kNamespace, space);
}

Value make_cycler(Interpreter& interpreter, const CallArguments& call) {
  require_positional("cycler", call);
  if (call.positional.empty()) fail("at least one item has to be provided");
  auto* cycler = interpreter.run().make<Cycler>();
  cycler->items = call.positional;
  return Value::object(Type::kCycler, cycler);
}

Value make_joiner(Interpreter& interpreter, const CallArguments& call) {
  const Arguments arguments("joiner", call, {"sep"});
  auto* joiner = interpreter.run().make<Joiner>();
  joiner->separator = arguments.value_or(0, Value::text(", "));
  return Value::object(Type::kJoiner, joiner);
}

Value refuse_lipsum(Interpreter&, const CallArguments&) {
  fail("lipsum() is not supported in chat templates");
}

Value raise_exception(Interpreter& interpreter, const CallArguments& call) {
  const Arguments arguments("raise_exception", call, {"message"}, 1);
  fail("the template refuses its input: ", to_text(interpreter.run(), arguments[0]));
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

Value strftime_now(Interpreter& interpreter, const CallArguments& call) {
  const Arguments arguments("strftime_now", call, {"format"}, 1);
  const std::string_view format = arguments.text(0);
  if (format.size() > 1000)
    fail("strftime_now() takes formats of up to 1000 bytes, found ", format.size());
  // One byte more in front tells an empty result from a buffer that was too small.
  const std::string prepared = "." + prepared_format(format);
  const std::tm time = interpreter.local_time();
  std::array<char, 16384> buffer{};
  const size_t size = std::strftime(buffer.data(), buffer.size(), prepared.c_str(), &time);
  if (size == 0) fail("strftime_now() gives more than ", buffer.size(), " bytes");
  return make_text(interpreter.run(), std::string(buffer.data() + 1, size - 1));
}

Value cycler_next(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("cycler.next", call);
  Cycler& cycler = self.as<Cycler>();
  const Value current = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("cycler.reset", call);
  self.as<Cycler>().at = 0;
  return Value::none();
}

}  // namespace

void add_globals(Run& run, Dict& globals) {
  constexpr std::array<std::pair<std::string_view, CallFunction>, 8> kFunctions{
      {{"range", make_range_of},
       {"dict", make_dict},
       {"namespace", make_namespace},
       {"cycler", make_cycler},
       {"joiner", make_joiner},
       {"lipsum", refuse_lipsum},
       {"raise_exception", raise_exception},
       {"strftime_now", strftime_now}}};
  for (const auto& [name, call] : kFunctions) {
    auto* function = run.make<Function>();
    function->name = name;
    function->call = call;
    globals.set(run, Value::text(name), Value::object(Type::kFunction, function));
  }
}

std::span<const NamedCall> cycler_methods() {
  static constexpr std::array<NamedCall, 2> kMethods{
      {{"next", cycler_next}, {"reset", cycler_reset}}};
  return kMethods;
}

Value cycler_attribute(const Value& self, std::string_view name) {
  const Cycler& cycler = self.as<Cycler>();
  return name == "current" ? cycler.items[cycler.at] : Value();
}

Value call_joiner(const Value& self, const CallArguments& arguments) {
  require_no_arguments("joiner", arguments);
  Joiner& joiner = self.as<Joiner>();
  const bool is_first = !joiner.is_used;
  joiner.is_used = true;
  return is_first ? Value::text("") : joiner.separator;
}

}  // namespace kvcal::jinja
