#pragma once

#include <span>

#include "jinja/calls.h"

namespace kvcal::jinja {

/// The methods of Python's types; one without a call exists in Python and is refused here by name.
std::span<const NamedCall> string_methods();
std::span<const NamedCall> list_methods();
std::span<const NamedCall> tuple_methods();
std::span<const NamedCall> dict_methods();
std::span<const NamedCall> number_methods();

/// Whether the immutable sandbox hides that method because it would change a list or dict.
bool changes_list(std::string_view method);
bool changes_dict(std::string_view method);

}  // namespace kvcal::jinja
