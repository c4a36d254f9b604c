#include "jinja/filters.h"

#include <array>

#include "jinja/access.h"
#include "jinja/interpreter.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {

const NamedCall* find_filter(std::string_view name) {
  static constexpr auto kRefused = std::to_array<NamedCall>({{"filesizeformat"},
                                                             {"pprint"},
                                                             {"random"},
                                                             {"striptags"},
                                                             {"urlencode"},
                                                             {"urlize"},
                                                             {"wordwrap"},
                                                             {"xmlattr"}});
  for (const auto& filters : {text_filters(), number_filters(), sequence_filters(),
                              selecting_filters(), std::span<const NamedCall>(kRefused)})
    if (const NamedCall* found = find_call(filters, name)) return found;
  return nullptr;
}

AttributePath::AttributePath(Interpreter& interpreter, const Value& path, const Value& fallback)
    : interpreter_(interpreter), fallback_(fallback) {
  if (path.is_none()) return;
  if (!path.is_string()) {
    parts_.push_back(path);
    return;
  }
  std::string_view rest = path.as_text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    parts_.push_back(is_index ? Value::integer(std::stoll(std::string(part))) : Value::text(part));
    if (dot == std::string_view::npos) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::of(const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = item_of(interpreter_, value, part);
    if (value.is_undefined() && !fallback_.is_missing()) value = fallback_;
  }
  return value;
}

Value folded_case(Run& run, const Value& value) {
  if (!value.is_string()) return value;
  run.charge(value.as_text().size() / 8);
  return make_text(run, to_lower(value.as_text()));
}

}  // namespace kvcal::jinja
