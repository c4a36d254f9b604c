#pragma once

#include <string_view>

#include "jinja/calls.h"

namespace kvcal::jinja {

/// The test of that name (x is name), or null. Source: Jinja2 3.1, tests.py.
const NamedCall* find_test(std::string_view name);

}  // namespace kvcal::jinja
