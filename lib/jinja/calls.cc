#include "jinja/calls.h"

#include <algorithm>
#include <array>

#include "jinja/interpreter.h"

namespace kvcal::jinja {

const Native* find_native(std::span<const Native> natives, std::string_view name) {
  for (const Native& native : natives)
    if (native.name == name) return &native;
  return nullptr;
}

Call::Call(Interpreter& caller, const Native& callee, const Value& owner,
           const CallArguments& arguments)
    : interpreter(caller),
      run(caller.run()),
      native(callee),
      self(owner),
      given(arguments),
      values(arguments.positional.get_allocator()) {
  size_t num_required = 0;
  bool takes_names = true;
  std::string_view rest = native.parameters;
  if (rest == "...") return;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(", "), rest.size());
    const std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 2, rest.size()));
    const bool is_optional = name.ends_with('=');
    if (name.starts_with('/') || name.starts_with('*'))
      takes_names = false;
    else
      names.push_back(name.substr(0, name.size() - (is_optional ? 1 : 0)));
    if (takes_names && !is_optional) ++num_required;
  }
  const bool has_any = !given.positional.empty() || !given.named.empty();
  if (native.parameters.empty() && has_any) fail(native.name, "() takes no arguments");
  if (!takes_names && !given.named.empty()) fail(native.name, "() takes no keyword arguments");
  if (native.parameters.starts_with('*')) return;
  if (given.positional.size() > names.size())
    fail(native.name, "() takes at most ", names.size(), " arguments, ", given.positional.size(),
         " were given");
  values = given.positional;
  values.resize(names.size());
  for (const auto& [name, value] : given.named) {
    const auto i = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (i == names.size()) fail(native.name, "() has no argument '", name, "'");
    if (has(i)) fail(native.name, "() got '", name, "' twice");
    values[i] = value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (!has(i)) fail(native.name, "() misses its argument '", names[i], "'");
}

int64_t Call::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  require_defined(values[i]);
  if (!values[i].is_integral())
    fail(native.name, "(): '", names[i], "' is of type ", type_name(values[i]), ", expected int");
  return values[i].as_integer();
}

std::string_view Call::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  if (!values[i].is_string())
    fail(native.name, "(): '", names[i], "' is of type ", type_name(values[i]), ", expected str");
  return run.text_of(values[i]);
}

std::optional<std::string_view> Call::optional_text(size_t i) const {
  if (!has(i) || values[i].is_none()) return std::nullopt;
  return text(i);
}

Value call_native(Interpreter& interpreter, const Native& native, const Value& self,
                  const CallArguments& given) {
  if (native.body == nullptr) fail(native.name, "() is not supported in chat templates");
  return native.body(Call(interpreter, native, self, given));
}

std::span<const Native> methods_of(Type type) {
  switch (type) {
    case Type::kString:
      return string_methods();
    case Type::kList:
      return list_methods();
    case Type::kTuple:
      return tuple_methods();
    case Type::kDict:
      return dict_methods();
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return number_methods();
    case Type::kLoop:
      return loop_methods();
    case Type::kCycler:
      return cycler_methods();
    default:
      return {};
  }
}

std::span<const std::span<const Native>> filters() {
  static constexpr auto kRefused = std::to_array<Native>({{"filesizeformat"},
                                                          {"pprint"},
                                                          {"random"},
                                                          {"striptags"},
                                                          {"urlencode"},
                                                          {"urlize"},
                                                          {"wordwrap"},
                                                          {"xmlattr"}});
  static const std::array<std::span<const Native>, 4> kTables{text_filters(), number_filters(),
                                                              sequence_filters(), kRefused};
  return kTables;
}

std::span<const std::span<const Native>> tests() {
  static const std::array<std::span<const Native>, 2> kTables{value_tests(), text_tests()};
  return kTables;
}

namespace {

const Native* find_in(std::span<const std::span<const Native>> tables, std::string_view name) {
  for (const auto& natives : tables)
    if (const Native* found = find_native(natives, name)) return found;
  return nullptr;
}

}  // namespace

const Native* find_filter(std::string_view name) {
  return find_in(filters(), name);
}

const Native* find_test(std::string_view name) {
  return find_in(tests(), name);
}

}  // namespace kvcal::jinja
