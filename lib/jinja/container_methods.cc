#include <array>

#include "jinja/interpreter.h"
#include "jinja/methods.h"
#include "jinja/printing.h"

namespace kvcal::jinja {
namespace {

Value index_of(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("index", call);
  const Arguments arguments("index", call, {"value", "start", "stop"}, 1);
  const auto& items = self.as<List>().items;
  const auto length = static_cast<int64_t>(items.size());
  const auto bound = [&](int64_t at) { return std::max<int64_t>(at < 0 ? at + length : at, 0); };
  const int64_t stop = std::min(bound(arguments.integer(2, length)), length);
  for (int64_t i = bound(arguments.integer(1)); i < stop; ++i)
    if (equals(interpreter.run(), items[static_cast<size_t>(i)], arguments[0]))
      return Value::integer(i);
  fail(to_repr(interpreter.run(), arguments[0]), " is not in ", type_name(self));
}

Value count_of(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("count", call);
  const Arguments arguments("count", call, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.as<List>().items)
    count += equals(interpreter.run(), item, arguments[0]);
  return Value::integer(count);
}

Value copy_list(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_no_arguments("copy", call);
  return make_list(interpreter.run(), self.as<List>().items);
}

Value copy_dict(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_no_arguments("copy", call);
  auto* copy = interpreter.run().make<Dict>();
  for (const auto& [key, value] : self.as<Dict>().entries) copy->set(interpreter.run(), key, value);
  return Value::object(Type::kDict, copy);
}

Value get(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("get", call);
  const Arguments arguments("get", call, {"key", "default"}, 1);
  const Value* found = self.as<Dict>().find(interpreter.run(), arguments[0]);
  return found != nullptr ? *found : arguments[1];
}

template <DictView::Part part>
Value view(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_no_arguments(part == DictView::Part::kKeys     ? "keys"
                       : part == DictView::Part::kValues ? "values"
                                                         : "items",
                       call);
  auto* object = interpreter.run().make<DictView>();
  object->dict = &self.as<Dict>();
  object->part = part;
  return Value::object(Type::kDictView, object);
}

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  for (const std::string_view known : names)
    if (name == known) return true;
  return false;
}

}  // namespace

std::span<const NamedCall> list_methods() {
  static constexpr std::array<NamedCall, 3> kMethods{
      {{"index", index_of}, {"count", count_of}, {"copy", copy_list}}};
  return kMethods;
}

std::span<const NamedCall> tuple_methods() {
  return list_methods().first(2);
}

std::span<const NamedCall> dict_methods() {
  static constexpr std::array<NamedCall, 6> kMethods{{{"items", view<DictView::Part::kItems>},
                                                      {"keys", view<DictView::Part::kKeys>},
                                                      {"values", view<DictView::Part::kValues>},
                                                      {"get", get},
                                                      {"copy", copy_dict},
                                                      {"fromkeys"}}};
  return kMethods;
}

std::span<const NamedCall> number_methods() {
  static constexpr std::array<NamedCall, 13> kMethods{{{"real"},
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
                                                       {"fromhex"}}};
  return kMethods;
}

// Source of both: Jinja2 3.1, sandbox.py, _mutable_spec.
bool changes_list(std::string_view method) {
  constexpr std::array<std::string_view, 8> kNames{"append", "clear", "pop",    "reverse",
                                                   "insert", "sort",  "extend", "remove"};
  return is_one_of(method, kNames);
}
bool changes_dict(std::string_view method) {
  constexpr std::array<std::string_view, 5> kNames{"clear", "pop", "popitem", "setdefault",
                                                   "update"};
  return is_one_of(method, kNames);
}

}  // namespace kvcal::jinja
