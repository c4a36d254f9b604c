#pragma once

#include <span>
#include <string_view>

#include "jinja/calls.h"

namespace kvcal::jinja {

/// The filter of that name, or null; one without a call is Jinja2's and refused here when it is
/// used. Source of all: Jinja2 3.1, filters.py; tojson: transformers, chat_template_utils.py.
const NamedCall* find_filter(std::string_view name);

std::span<const NamedCall> text_filters();
std::span<const NamedCall> number_filters();
std::span<const NamedCall> sequence_filters();
std::span<const NamedCall> selecting_filters();

/// Looks up a dotted path such as "function.name", whose numbers are indices; an empty path for
/// none.
class AttributePath {
 public:
  /// path: a str, an int or none; fallback, if not missing, stands in for parts that are undefined.
  AttributePath(Interpreter& interpreter, const Value& path, const Value& fallback = {});
  Value of(const Value& item) const;

 private:
  Interpreter& interpreter_;
  std::vector<Value> parts_;
  Value fallback_;
};
/// Texts in lower case, other values as they are.
Value folded_case(Run& run, const Value& value);

}  // namespace kvcal::jinja
