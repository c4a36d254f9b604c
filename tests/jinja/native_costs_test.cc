// Every function, method, filter and test of the language, from the tables in which the language
// itself looks them up, on inputs that are made to cost: they pay for what they are given, take no
// longer than they paid for, and no memory that was not charged before.
#include <malloc.h>

#include <algorithm>
#include <atomic>
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

struct Entry {
  const Native* native = nullptr;
  std::string owner;                        ///< for messages
  std::optional<Type> self = std::nullopt;  ///< of a method
};

/// All natives but those that are refused by name.
std::vector<Entry> entries() {
  std::vector<Entry> found;
  const auto add = [&](std::span<const Native> natives, const std::string& owner,
                       std::optional<Type> self = std::nullopt) {
    for (const Native& native : natives)
      if (native.body != nullptr) found.push_back({&native, owner, self});
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

/// Texts of that many bytes and containers of that many items.
struct Size {
  size_t bytes = 0;
  int64_t items = 0;
};

void add_containers(Room& room, const Size& size, std::vector<Value>& values) {
  Run& run = room.run;
  Values items(run), texts(run), copies(run);
  for (int64_t i = 0; i < size.items; ++i) items.push_back(Value::integer(i));
  for (int64_t i = 0; i < 10; ++i) texts.push_back(values.front());
  for (int64_t i = 0; i < size.items; ++i) copies.push_back(room.text("a"));
  const Value list = make_list(run, items);
  values.insert(values.end(), {list, make_list(run, items, Type::kTuple), make_list(run, texts),
                               make_list(run, copies)});
  auto* dict = run.make<Dict>(run);
  // These would all share a bucket of a hash table of a thousand.
  for (int64_t i = 0; i < size.items; ++i) dict->set(run, Value::integer(i * 13'781'911), items[0]);
  values.push_back(Value::object(Type::kDict, dict));
  values.push_back(make_range(run, 0, size.items, 1));
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
std::vector<Value> hostile_values(Room& room, const Size& size) {
  std::vector<Value> values;
  for (const char* part :
       {"a", " ", "\n", "\xc5\x89", "\xce\xa3.", "&", "1", "1_", "\x01", "%s", "{}", "0."})
    values.push_back(room.text(repeated(part, size.bytes)));
  values.push_back(room.text(repeated("a", size.bytes / 2) + "b"));
  values.push_back(room.text("b" + repeated("a", size.bytes / 2)));
  add_containers(room, size, values);
  return values;
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
  add({Value::none(), hostile});
  add({room.text("upper")});
  add({room.text("in"), hostile});
  return lists;
}

/// Calls native and walks over what it gives, as a template would. The error, or none.
std::string outcome(Room& room, const Native& native, const Value& self, const Values& arguments) {
  try {
    CallArguments given(room.run);
    given.positional = arguments;
    const Value result = call_native(room.interpreter, native, self, given);
    if (result.is(Type::kIterator)) items_of(room.run, result);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// Memory that a room has beside its hostile values.
constexpr size_t kSpare = size_t{2} << 20;

/// Calls entry on each of hostile_values, with every twelfth of them in its arguments; each call by
/// call(room, self, arguments). A room of which much is used up is left for a new one.
template <class Call>
void for_each_call(const Entry& entry, const TemplateLimits& limits, const Size& size,
                   const Call& call) {
  constexpr size_t kStride = 12;
  std::optional<Room> room;
  std::vector<Value> values;
  const auto refresh = [&] {
    if (room && room->run.steps() < limits.max_steps / 2 &&
        room->run.memory() < limits.max_memory_bytes - kSpare / 2)
      return;
    values.clear();
    room.emplace(limits);
    values = hostile_values(*room, size);
  };
  refresh();
  for (size_t self = 0; self < values.size(); ++self) {
    if (entry.self && *entry.self != values[self].type()) continue;
    // Without parameters every call but the first is refused.
    const bool is_one = entry.native->parameters.empty();
    for (size_t hostile = self % kStride; hostile < (is_one ? kStride : values.size());
         hostile += kStride)
      for (size_t list = 0, num_lists = 1; list < num_lists; ++list) {
        refresh();
        const auto lists = argument_lists(*room, values[hostile]);
        if (!is_one) num_lists = lists.size();
        call(*room, values[self], lists[list]);
      }
  }
}

/// The most seconds that such a call took beyond those that its steps may take.
double seconds_unpaid(const Entry& entry) {
  constexpr double kSecondsPerStep = 3e-6;  // ten times what the slowest takes
  const TemplateLimits limits{.max_steps = 1'000'000, .max_output_bytes = size_t{4} << 20};
  double most = 0;
  for_each_call(entry, limits, {size_t{128} << 10, 5'000},
                [&](Room& room, const Value& value, const Values& arguments) {
                  const uint64_t steps = room.run.steps();
                  // Of this process: others may keep the machine busy.
                  const std::clock_t start = std::clock();
                  outcome(room, *entry.native, value, arguments);
                  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
                  const auto paid = static_cast<double>(room.run.steps() - steps);
                  most = std::max(most, seconds - kSecondsPerStep * paid);
                });
  return most;
}

}  // namespace

TEST_CASE("jinja: no native takes longer than it paid for") {
  constexpr double kMostSeconds = 0.02;
  for (const Entry& entry : entries()) {
    double unpaid = seconds_unpaid(entry);
    for (int again = 0; again < 2 && unpaid > kMostSeconds; ++again)
      unpaid = std::min(unpaid, seconds_unpaid(entry));
    CAPTURE(entry.owner, entry.native->name);
    CHECK(unpaid <= kMostSeconds);
  }
}

TEST_CASE("jinja: no native takes memory that was not charged") {
  constexpr size_t kApart = size_t{512} << 10;  // messages, and what is small
  constexpr Size kSize{size_t{64} << 10, 1000};
  Room first({});
  hostile_values(first, kSize);
  const TemplateLimits limits{.max_output_bytes = size_t{1} << 20,
                              .max_memory_bytes = first.run.memory() + kSpare};
  int64_t calls = 0;
  for (const Entry& entry : entries())
    for_each_call(entry, limits, kSize,
                  [&](Room& room, const Value& value, const Values& arguments) {
                    ++calls;
                    const size_t charged = room.run.memory();
                    const size_t apart = live_bytes - std::min<size_t>(live_bytes, charged);
                    most_bytes = size_t{live_bytes};
                    const std::string error = outcome(room, *entry.native, value, arguments);
                    const size_t most = apart + limits.max_memory_bytes + kApart;
                    if (most_bytes <= most) return;
                    CAPTURE(entry.owner, entry.native->name, arguments.size(), error);
                    CHECK(most_bytes <= most);
                  });
  CHECK(calls > 5'000);
}
