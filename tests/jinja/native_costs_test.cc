// Every function, method, filter and test of the language, from the tables that the language itself
// uses, on inputs that are made to cost: they pay for what they are given, and take no memory that
// was not charged before.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"
#include "jinja/calls.h"
#include "jinja/interpreter.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::jinja;

namespace {

/// Bytes that the process has from the heap, and the most since the last mark.
std::atomic<size_t> live_bytes{0}, most_bytes{0};

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = live_bytes += malloc_usable_size(memory);
  size_t most = most_bytes;
  while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
  }
  return memory;
}

}  // namespace

void* operator new(size_t size) {
  return counted(std::malloc(size == 0 ? 1 : size));
}
void operator delete(void* memory) noexcept {
  live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t /*size*/) noexcept {
  operator delete(memory);
}

namespace {

constexpr size_t kLong = size_t{64} << 10;

struct Table {
  const char* name;
  std::span<const Native> natives;
};

std::vector<Table> tables() {
  return {
      {"str", string_methods()},    {"list", list_methods()},       {"tuple", tuple_methods()},
      {"dict", dict_methods()},     {"number", number_methods()},   {"cycler", cycler_methods()},
      {"loop", loop_methods()},     {"global", global_functions()}, {"filter", text_filters()},
      {"filter", number_filters()}, {"filter", sequence_filters()}, {"test", text_tests()},
      {"test", value_tests()}};
}

/// One rendering without a template.
struct Room {
  explicit Room(const TemplateLimits& limits)
      : run(limits), variables(run), interpreter(tree, run, variables, [] { return std::tm{}; }) {}
  Value text(const std::string& content) { return make_text(run, run.text(content)); }

  SyntaxTree tree = parse("");
  Run run;
  Dict variables;
  Interpreter interpreter;
};

std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

/// What a native may be called on: its table's type where it must be, else anything.
std::vector<Value> hostile_values(Room& room) {
  Run& run = room.run;
  std::vector<Value> values;
  for (const char* part :
       {"a", " ", "\n", "\xc5\x89", "\xce\xa3.", "&", "1", "_", "\x01", "%s", "{}"})
    values.push_back(room.text(repeated(part, kLong)));
  values.push_back(room.text(repeated("a", kLong / 2) + "b"));
  values.push_back(room.text("b" + repeated("a", kLong / 2)));
  constexpr int64_t kItems = 1000;
  Values items(run), texts(run);
  for (int64_t i = 0; i < kItems; ++i) {
    items.push_back(Value::integer(i));
    texts.push_back(values.front());
  }
  values.push_back(make_list(run, items));
  values.push_back(make_list(run, items, Type::kTuple));
  values.push_back(make_list(run, texts));
  auto* dict = run.make<Dict>(run);
  // These would all share a bucket of a hash table of that many.
  for (int64_t i = 0; i < kItems; ++i) dict->set(run, Value::integer(i * 13'781'911), items[0]);
  values.push_back(Value::object(Type::kDict, dict));
  values.push_back(make_range(run, 0, kItems, 1));
  return values;
}

bool fits(const Table& table, const Value& self) {
  const std::string_view name = table.name;
  if (name == "filter" || name == "test" || name == "global") return true;
  return name == type_name(self);
}

std::vector<Values> argument_lists(Room& room, const Value& hostile) {
  const Value number = Value::integer(1000);
  std::vector<Values> lists;
  const auto add = [&](std::initializer_list<Value> values) {
    lists.emplace_back(values, Metered<Value>(room.run));
  };
  add({});
  add({hostile});
  add({hostile, hostile});
  add({hostile, hostile, number});
  add({number, hostile});
  add({room.text("upper")});
  add({room.text("in"), hostile});
  return lists;
}

/// Calls native and walks over what it gives, as a template would. The error, or none.
std::string outcome(Room& room, const Native& native, const Value& self, const Values& arguments) {
  CallArguments given(room.run);
  given.positional = arguments;
  try {
    const Value result = call_native(room.interpreter, native, self, given);
    if (result.is(Type::kIterator)) items_of(room.run, result);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("jinja: every native pays for the texts that it is given") {
  int count = 0;
  for (const Table& table : tables())
    for (const Native& native : table.natives) {
      if (native.body == nullptr) continue;
      CAPTURE(table.name, native.name);
      ++count;
      const auto steps = [&](size_t self_bytes, size_t argument_bytes) {
        Room room({});
        const Value self = room.text(std::string(self_bytes, 'x'));
        const Values arguments({room.text(std::string(argument_bytes, 'x'))},
                               Metered<Value>(room.run));
        const uint64_t before = room.run.steps();
        CallArguments given(room.run);
        given.positional = arguments;
        try {
          call_native(room.interpreter, native, self, given);
        } catch (const Error&) {  // most natives refuse one of the two; they pay all the same
        }
        return room.run.steps() - before;
      };
      CHECK(steps(kLong, 1) >= steps(1, 1) + kLong / 64 - 1);
      CHECK(steps(1, kLong) >= steps(1, 1) + kLong / 64 - 1);
    }
  CHECK(count > 100);
}

TEST_CASE("jinja: no native takes memory that was not charged") {
  constexpr size_t kMost = size_t{8} << 20, kApart = size_t{1} << 20;
  const TemplateLimits limits{.max_output_bytes = size_t{2} << 20, .max_memory_bytes = kMost};
  int64_t calls = 0;
  const auto check = [&](const Table& table, const Native& native, size_t self, size_t hostile) {
    Room room(limits);
    const auto values = hostile_values(room);
    if (!fits(table, values[self])) return;
    for (const Values& arguments : argument_lists(room, values[hostile])) {
      const size_t apart = live_bytes - std::min<size_t>(live_bytes, room.run.memory());
      most_bytes = size_t{live_bytes};
      const std::string error = outcome(room, native, values[self], arguments);
      ++calls;
      if (most_bytes <= apart + kMost + kApart) continue;
      CAPTURE(table.name, native.name, self, hostile, arguments.size(), error.substr(0, 200));
      CHECK(most_bytes <= apart + kMost + kApart);
    }
  };
  Room room({});
  const size_t num_values = hostile_values(room).size();
  for (const Table& table : tables())
    for (const Native& native : table.natives)
      for (size_t self = 0; native.body != nullptr && self < num_values; ++self)
        for (size_t hostile = self % 3; hostile < num_values; hostile += 3)
          check(table, native, self, hostile);
  CHECK(calls > 10'000);
}
