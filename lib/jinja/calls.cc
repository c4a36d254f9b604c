#include "jinja/calls.h"

namespace kvcal::jinja {

const NamedCall* find_call(std::span<const NamedCall> calls, std::string_view name) {
  for (const NamedCall& entry : calls)
    if (entry.name == name) return &entry;
  return nullptr;
}

Arguments::Arguments(std::string_view function, const CallArguments& call,
                     std::initializer_list<std::string_view> names, size_t num_required)
    : function_(function), names_(names), values_(names.size()) {
  if (call.positional.size() > names_.size())
    fail(function_, "() takes at most ", names_.size(), " arguments, ", call.positional.size(),
         " were given");
  for (size_t i = 0; i < call.positional.size(); ++i) values_[i] = call.positional[i];
  for (const auto& [name, value] : call.named) {
    size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) fail(function_, "() has no argument '", name, "'");
    if (has(i)) fail(function_, "() got '", name, "' twice");
    values_[i] = value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (!has(i)) fail(function_, "() misses its argument '", names_[i], "'");
}

int64_t Arguments::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  require_defined(values_[i]);
  if (!values_[i].is_integral())
    fail(function_, "(): '", names_[i], "' is of type ", type_name(values_[i]), ", expected int");
  return values_[i].as_integer();
}

std::string_view Arguments::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  if (!values_[i].is_string())
    fail(function_, "(): '", names_[i], "' is of type ", type_name(values_[i]), ", expected str");
  return values_[i].as_text();
}

std::optional<std::string_view> Arguments::optional_text(size_t i) const {
  if (!has(i) || values_[i].is_none()) return std::nullopt;
  return text(i);
}

void require_no_arguments(std::string_view function, const CallArguments& call) {
  if (!call.positional.empty() || !call.named.empty()) fail(function, "() takes no arguments");
}

void require_positional(std::string_view function, const CallArguments& call) {
  if (!call.named.empty()) fail(function, "() takes no keyword arguments");
}

}  // namespace kvcal::jinja
