#pragma once

#include <string_view>

#include "jinja/value.h"

namespace kvcal::jinja {

/// owner.name: an attribute or method, else the item of that key, else undefined. Throws Error for
/// an undefined owner. Source: Jinja2 3.1, sandbox.py, SandboxedEnvironment.getattr.
Value attribute_of(Interpreter& interpreter, const Value& owner, std::string_view name);
/// owner[key]: an item, else for a text key the attribute, else undefined.
Value item_of(Interpreter& interpreter, const Value& owner, const Value& key);
/// The attribute that Python's getattr alone finds, made safe; missing where there is none.
Value own_attribute(Interpreter& interpreter, const Value& owner, std::string_view name);
/// owner[start:stop:step], none for a part left out. Throws Error for what cannot be cut.
Value slice_of(Run& run, const Value& owner, const Value& start, const Value& stop,
               const Value& step);

}  // namespace kvcal::jinja
