#pragma once

#include <span>
#include <string_view>

#include "jinja/calls.h"

namespace kvcal::jinja {

/// Puts the functions every template may call into globals: range, dict, namespace, cycler, joiner,
/// lipsum (refused), raise_exception, strftime_now.
void add_globals(Run& run, Dict& globals);

std::span<const NamedCall> cycler_methods();
/// cycler.current; missing for an unknown name.
Value cycler_attribute(const Value& self, std::string_view name);
Value call_joiner(const Value& self, const CallArguments& arguments);

}  // namespace kvcal::jinja
