// Every function, method, filter and test of the language, from the tables in which the language
// itself looks them up, on inputs that are made to cost: none takes longer than it paid for, or
// memory that it did not pay for.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::jinja;

namespace {

/// Bytes that the program has from the heap.
int64_t live_bytes = 0;
/// The rendering that is watched, if any; how far live_bytes were from what it had charged before,
/// and the farthest that they were beyond that at an allocation since.
const Run* watched = nullptr;
int64_t apart = 0, most_unpaid = 0;

void* counted(void* memory) noexcept {
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  if (watched != nullptr)
    most_unpaid =
        std::max(most_unpaid, live_bytes - static_cast<int64_t>(watched->memory()) - apart);
  return memory;
}

}  // namespace

// All forms, for a sanitizer's own would take memory that these do not count and free otherwise.
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return counted(std::malloc(size == 0 ? 1 : size));
}
void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* memory) noexcept {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t /*size*/) noexcept {
  operator delete(memory);
}
void operator delete[](void* memory) noexcept {
  operator delete(memory);
}
void operator delete[](void* memory, size_t /*size*/) noexcept {
  operator delete(memory);
}

namespace {

struct Entry {
  const Native* native = nullptr;
  std::string owner;                        ///< for messages
  std::optional<Type> self = std::nullopt;  ///< of a method
};

/// All natives but those that are refused by name and second names of others.
std::vector<Entry> entries() {
  std::vector<Entry> found;
  const auto add = [&](std::span<const Native> natives, const std::string& owner,
                       std::optional<Type> self = std::nullopt) {
    for (const Native& native : natives)
      if (native.body != nullptr && std::ranges::none_of(found, [&](const Entry& known) {
            return known.native->body == native.body && known.self == self &&
                   known.native->parameters == native.parameters;
          }))
        found.push_back({&native, owner, self});
  };
  for (int type = 0; type <= static_cast<int>(Type::kJoiner); ++type)
    add(methods_of(static_cast<Type>(type)), "type " + std::to_string(type),
        static_cast<Type>(type));
  add(global_functions(), "function");
  for (const auto& natives : filters()) add(natives, "filter");
  for (const auto& natives : tests()) add(natives, "test");
  return found;
}

/// One rendering without a template.
struct Room {
  explicit Room(const TemplateLimits& limits = {})
      : run(limits), variables(run), interpreter(tree, run, variables, [] { return std::tm{}; }) {}

  SyntaxTree tree = parse("");
  Run run;
  Dict variables;
  Interpreter interpreter;
};

constexpr size_t kBytes = size_t{32} << 10;  ///< of hostile texts
constexpr int64_t kItems = 1000;             ///< of hostile containers

std::string repeated(const std::string& part, size_t bytes = kBytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

/// Texts that make natives work. They outlive all renderings.
const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (const char* part : {"a", " ", "\n", "\xc5\x89", "\xce\xa3.", "&", "1", "1_", "\x01", "%s",
                             "{}", "0.", "{0}", "{0:.0e}", "%.0s", "%(a)s", "%%"})
      texts.push_back(repeated(part));
    texts.push_back(repeated("a", kBytes / 2) + "b");
    texts.push_back("b" + repeated("a", kBytes / 2));
    return texts;
  }();
  return kTexts;
}

void add_containers(Room& room, std::vector<Value>& values) {
  Run& run = room.run;
  Values items(run), copies(run);
  const Values texts(10, values.front(), run);
  for (int64_t i = 0; i < kItems; ++i) items.push_back(Value::integer(i));
  for (int64_t i = 0; i < kItems; ++i) copies.push_back(make_text(run, run.text("a")));
  const Value list = make_list(run, items);
  values.insert(values.end(), {list, make_list(run, items, Type::kTuple), make_list(run, texts),
                               make_list(run, copies)});
  auto* dict = run.make<Dict>(run);
  // These would all share a bucket of a hash table of a thousand.
  for (int64_t i = 0; i < kItems; ++i) dict->set(run, Value::integer(i * 13'781'911), items[0]);
  values.push_back(Value::object(Type::kDict, dict));
  values.push_back(make_range(run, 0, kItems, 1));
  auto* loop = run.make<Loop>(run, list);
  Value item;
  loop->advance(item);
  values.push_back(Value::object(Type::kLoop, loop));
  CallArguments given(run);
  given.positional = texts;
  values.push_back(
      call_native(room.interpreter, *find_native(global_functions(), "cycler"), {}, given));
  values.push_back(Value::integer(7));
  values.push_back(Value::number(1.7976931348623157e308));
}

/// What makes natives work: the value as self or as an argument.
std::vector<Value> hostile_values(Room& room) {
  std::vector<Value> values;
  for (const std::string& text : hostile_texts()) values.push_back(Value::text(text));
  add_containers(room, values);
  return values;
}

/// A call of a native: which of the hostile values is self, which is in the arguments, and in which
/// of kNumLists ways.
struct Choice {
  size_t self = 0, hostile = 0, list = 0;
};
constexpr size_t kNumFixed = 5, kNumLists = 12;

/// A rendering in which natives are called.
struct Scene {
  // So few steps that a call that uses them all up is over soon.
  Scene()
      : room({.max_steps = 200'000, .max_output_bytes = size_t{4} << 20}),
        values(hostile_values(room)) {
    NamedValues named(room.run);
    named.emplace_back("a", Value::text(""));
    fields = make_dict(room.run, named);
    const Values texts(kBytes / 4, Value::text(""), room.run);
    empty_texts = make_list(room.run, texts, Type::kTuple);
  }
  bool is_worn() const {
    return room.run.steps() > room.run.limits().max_steps / 4 ||
           room.run.memory() > room.run.limits().max_memory_bytes / 4;
  }

  Room room;
  std::vector<Value> values;
  Value fields;       ///< a dict for a format string of fields with names
  Value empty_texts;  ///< a tuple with one for each field of a format string
};

CallArguments arguments_of(Scene& scene, const Choice& choice) {
  const Value hostile = scene.values[choice.hostile], number = Value::integer(1000);
  // The first kNumFixed need no hostile value.
  const std::array<std::vector<Value>, kNumLists> lists{{{},
                                                         {Value::text("upper")},
                                                         {Value::number(5e-324)},
                                                         {scene.fields},
                                                         {scene.empty_texts},
                                                         {hostile},
                                                         {hostile, hostile},
                                                         {hostile, hostile, number},
                                                         {number, hostile},
                                                         {Value::none(), hostile},
                                                         {Value::text("in"), hostile}}};
  CallArguments given(scene.room.run);
  given.positional.assign(lists[choice.list].begin(), lists[choice.list].end());
  if (choice.list + 1 == kNumLists) given.named.emplace_back("attribute", hostile);
  return given;
}

/// Calls native and walks over what it gives, as a template would. Whether there was no error.
bool succeeds(Room& room, const Native& native, const Value& self, const CallArguments& given) {
  try {
    const Value result = call_native(room.interpreter, native, self, given);
    if (result.is(Type::kIterator)) items_of(room.run, result);
  } catch (const Error&) {
    return false;
  }
  return true;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  double seconds = 0, steps = 0;
  bool is_refused = false;  ///< the last call ended with an error
};

/// The cost of up to 64 such calls, for cheap ones must add up; an error ends a rendering. A
/// template takes three steps to reach a native.
Cost cost_of(Room& room, const Native& native, const Value& self, const CallArguments& given) {
  constexpr int kMostCalls = 64;
  constexpr double kEnough = 1.5e-4;
  const double start = cpu_seconds();
  const uint64_t before = room.run.steps();
  Cost cost;
  int calls = 0;
  for (bool goes_on = true; goes_on;) {
    ++calls;
    cost.is_refused = !succeeds(room, native, self, given);
    cost.seconds = cpu_seconds() - start;
    goes_on = !cost.is_refused && calls < kMostCalls && cost.seconds < kEnough;
  }
  cost.steps = static_cast<double>(room.run.steps() - before) + 3.0 * calls;
  return cost;
}

/// Seconds of an ordinary step on this machine as it is now.
double seconds_per_step() {
  double best = 1;
  for (int i = 0; i < 3; ++i) {
    Room room;
    const Cost cost = cost_of(room, *find_filter("upper"), Value::text(hostile_texts()[0]),
                              CallArguments(room.run));
    best = std::min(best, cost.seconds / cost.steps);
  }
  return best;
}

/// Seconds that such a call may take. Ten ordinary steps are about a microsecond, which makes ten
/// seconds of all that a template has. A message is made once, and has 4 kB before it is escaped.
double most_seconds(const Cost& cost, double unit) {
  return 10 * unit * cost.steps + (cost.is_refused ? 1e-3 : 5e-5);
}
int64_t most_unpaid_by(const Cost& cost) {
  return cost.is_refused ? 96 << 10 : 16 << 10;
}

/// Whether the call took no longer than its steps may take, when it is tried often enough.
bool is_paid(const Entry& entry, const Choice& choice) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    Scene scene;
    const double unit = seconds_per_step();
    const CallArguments given = arguments_of(scene, choice);
    const Cost cost = cost_of(scene.room, *entry.native, scene.values[choice.self], given);
    UNSCOPED_INFO(cost.seconds << " s for " << cost.steps << " steps of " << unit << " s");
    if (cost.seconds <= most_seconds(cost, unit)) return true;
  }
  return false;
}

/// Visits calls of entry: each of the hostile values with every sixteenth in the arguments.
template <class Visit>
void for_each_choice(const Entry& entry, const std::vector<Value>& values, const Visit& visit) {
  constexpr size_t kStride = 16;
  // Without parameters every call but the first is refused.
  const bool is_one = entry.native->parameters.empty();
  for (size_t self = 0; self < values.size(); ++self) {
    if (entry.self && *entry.self != values[self].type()) continue;
    for (size_t list = 0; list < (is_one ? 1 : kNumFixed); ++list) visit(Choice{self, 0, list});
    for (size_t hostile = self % kStride; !is_one && hostile < values.size(); hostile += kStride)
      for (size_t list = kNumFixed; list < kNumLists; ++list) visit(Choice{self, hostile, list});
  }
}

/// Checks what the calls of entry take; how many there are.
int check_costs(const Entry& entry) {
  constexpr int kMostCalls = 64;  // in one scene, for a list of many objects grows by much at once
  const double unit = seconds_per_step();
  int calls = 0;
  std::optional<Scene> scene(std::in_place);
  const std::vector<Value> kinds = scene->values;
  for_each_choice(entry, kinds, [&](const Choice& choice) {
    if (++calls % kMostCalls == 0 || scene->is_worn()) scene.emplace();
    Room& room = scene->room;
    const CallArguments given = arguments_of(*scene, choice);
    watched = &room.run;
    apart = live_bytes - static_cast<int64_t>(room.run.memory());
    most_unpaid = 0;
    const Cost cost = cost_of(room, *entry.native, scene->values[choice.self], given);
    watched = nullptr;
    const bool is_quick = cost.seconds <= most_seconds(cost, unit);
    if (is_quick && most_unpaid <= most_unpaid_by(cost)) return;
    CAPTURE(entry.owner, entry.native->name, choice.self, choice.hostile, choice.list);
    CHECK(most_unpaid <= most_unpaid_by(cost));
    CHECK((is_quick || is_paid(entry, choice)));
  });
  return calls;
}

}  // namespace

TEST_CASE("jinja: no native takes time or memory that it did not pay for", "[slow]") {
  int calls = 0;
  for (const Entry& entry : entries()) calls += check_costs(entry);
  CHECK(entries().size() > 80);
  CHECK(calls > 10'000);
}

TEST_CASE("jinja: no template takes longer than it paid for", "[slow]") {
  const std::string loop = "{% for i in range(100000) %}", end = "{% endfor %}";
  const std::string name = repeated("a", 500'000);
  const std::string texts = "{% set x = 'a' * 32768 %}{% set y = x ~ 'b' %}" + loop;
  std::vector<std::string> sources{
      "{% set x = [1.7e308] * 1000 %}" + loop + "{{ x|map('round')|sum }}" + end,
      "{% macro " + name + "() %}{% endmacro %}" + loop + "{{ " + name + "() }}" + end,
      loop + "{% set x = 1 %}" + end,
      repeated("{% for i in j %}", 190 * 16) + repeated("{{a}}", 120'000 * 5) +
          repeated("{% endfor %}", 190 * 12)};
  for (const char* work : {"x in y", "y in x", "x == y", "x < y", "x[9:99]", "x and y", "x[-1]"})
    sources.push_back(texts + "{% if " + work + " %}{% endif %}" + end);
  for (const std::string& source : sources) {
    CAPTURE(source.substr(0, 80));
    double seconds = 0, most = 0;
    for (int i = 0; i < 3 && seconds >= most; ++i) {
      const double unit = seconds_per_step();
      const double start = cpu_seconds();
      Run run({.max_steps = 1'000'000});
      try {
        const SyntaxTree tree = parse(source);
        const Dict variables(run);
        Interpreter(tree, run, variables, [] { return std::tm{}; }).render();
      } catch (const Error&) {  // as all of them should
      }
      seconds = cpu_seconds() - start;
      // Each byte of a template may take a step, too.
      most = 10 * unit * static_cast<double>(run.steps() + source.size());
    }
    CHECK(seconds < most);
  }
}
