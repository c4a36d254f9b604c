#include <algorithm>
#include <array>

#include "jinja/calls.h"
#include "jinja/printing.h"

namespace kvcal::jinja {
namespace {

Value index_of(const Call& call) {
  const auto& items = call.self.as<List>().items;
  const auto length = static_cast<int64_t>(items.size());
  const auto bound = [&](int64_t at) { return std::max<int64_t>(at < 0 ? at + length : at, 0); };
  const int64_t stop = std::min(bound(call.integer(2, length)), length);
  for (int64_t i = bound(call.integer(1)); i < stop; ++i)
    if (equals(call.run, items[static_cast<size_t>(i)], call[0])) return Value::integer(i);
  fail(to_repr(call.run, call[0]), " is not in ", type_name(call.self));
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
  auto* copy = call.run.make<Dict>(call.run);
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

constexpr auto kListMethods = std::to_array<Native>({{"index", "value, start=, stop=, /", index_of},
                                                     {"count", "value, /", count_of},
                                                     {"copy", "", copy_list}});
constexpr auto kDictMethods = std::to_array<Native>({{"items", "", view<DictView::Part::kItems>},
                                                     {"keys", "", view<DictView::Part::kKeys>},
                                                     {"values", "", view<DictView::Part::kValues>},
                                                     {"get", "key, default=, /", get},
                                                     {"copy", "", copy_dict},
                                                     {"fromkeys"}});
constexpr auto kNumberMethods = std::to_array<Native>({{"real"},
                                                       {"imag"},
                                                       {"numerator"},
                                                       {"denominator"},
                                                       {"conjugate"},
                                                       {"bit_length"},
                                                       {"bit_count"},
                                                       {"to_bytes"},
                                                       {"from_bytes"},
                                                       {"as_integer_ratio"},
                                                       {"is_integer"},
                                                       {"hex"},
                                                       {"fromhex"}});

// Source of both: Jinja2 3.1, sandbox.py, _mutable_spec.
constexpr std::array<std::string_view, 8> kListChanges{"append", "clear", "pop",    "reverse",
                                                       "insert", "sort",  "extend", "remove"};
constexpr std::array<std::string_view, 5> kDictChanges{"clear", "pop", "popitem", "setdefault",
                                                       "update"};

}  // namespace

std::span<const Native> list_methods() {
  return kListMethods;
}
std::span<const Native> tuple_methods() {
  return list_methods().first(2);
}
std::span<const Native> dict_methods() {
  return kDictMethods;
}
std::span<const Native> number_methods() {
  return kNumberMethods;
}
bool changes_list(std::string_view method) {
  return std::ranges::find(kListChanges, method) != kListChanges.end();
}
bool changes_dict(std::string_view method) {
  return std::ranges::find(kDictChanges, method) != kDictChanges.end();
}

}  // namespace kvcal::jinja
