#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/objects.h"
#include "jinja/syntax.h"

namespace kvcal::jinja {

/// One call of a function: its variables, and the call it was defined in.
struct Activation : Object {
  Activation* outer = nullptr;
  std::vector<Value> slots;
};

/// A macro, or the body of a call block as `caller`.
struct Macro : Object {
  const Statement* definition = nullptr;
  Activation* closure = nullptr;
};

/// The text of a call: arguments bound by Jinja2's rules for macros, not Python's for functions.
/// Source: Jinja2 3.1, runtime.py, Macro.__call__.
Value call_macro(Interpreter& interpreter, const Macro& macro, const CallArguments& call);
/// macro.name and its kin; missing for an unknown name.
Value macro_attribute(Run& run, const Value& value, std::string_view name);
std::string macro_repr(const Value& value);

}  // namespace kvcal::jinja
