#include <algorithm>
#include <array>

#include "jinja/formatting.h"
#include "jinja/interpreter.h"
#include "jinja/methods.h"
#include "jinja/python_str.h"
#include "jinja/splitting.h"

namespace kvcal::jinja {
namespace {

/// A text made from self: what was marked safe stays so.
Value same_kind(Interpreter& interpreter, const Value& self, std::string text) {
  return Value::text(interpreter.run().keep(std::move(text)), self.is_markup());
}

void refuse_markup(const Value& self, std::string_view method) {
  if (self.is_markup()) fail(method, "() of a text marked safe is not supported");
}

template <std::string (*recase)(std::string_view)>
Value recased(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_no_arguments("this method", call);
  interpreter.run().charge(self.as_text().size() / 8);
  return same_kind(interpreter, self, recase(self.as_text()));
}

template <bool left, bool right>
Value strip(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("strip", call);
  const Arguments arguments("strip", call, {"chars"});
  const auto characters = arguments.optional_text(0);
  interpreter.run().charge(self.as_text().size() * (characters ? characters->size() : 1) / 64);
  return Value::text(stripped(self.as_text(), characters, left, right), self.is_markup());
}

template <bool (*accepts)(char32_t)>
Value all_of(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("this method", call);
  const std::string_view text = self.as_text();
  for (size_t at = 0; at < text.size();)
    if (!accepts(next_code_point(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty() || accepts == is_printable);
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value has_case(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("this method", call);
  bool has_any = false;
  const std::string_view text = self.as_text();
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (unwanted(c) || is_title(c)) return Value::boolean(false);
    has_any |= wanted(c);
  }
  return Value::boolean(has_any);
}

/// startswith and endswith: one text or a tuple of them, and the part of self to look at.
template <bool at_end>
Value has_affix(Interpreter&, const Value& self, const CallArguments& call) {
  const char* name = at_end ? "endswith" : "startswith";
  require_positional(name, call);
  const Arguments arguments(name, call, {"prefix", "start", "end"}, 1);
  const TextPart part = part_of(self.as_text(), arguments, 1, 2);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      fail(name, " first arg must be str or a tuple of str, not ", type_name(affix));
    if (!part.is_valid) return false;
    return at_end ? part.text.ends_with(affix.as_text()) : part.text.starts_with(affix.as_text());
  };
  if (!arguments[0].is(Type::kTuple)) return Value::boolean(matches(arguments[0]));
  for (const Value& affix : arguments[0].as<List>().items)
    if (matches(affix)) return Value::boolean(true);
  return Value::boolean(false);
}

template <bool from_end, bool must_exist>
Value find(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("find", call);
  const Arguments arguments("find", call, {"sub", "start", "end"}, 1);
  const TextPart part = part_of(self.as_text(), arguments, 1, 2);
  interpreter.run().charge_bytes(self.as_text().size());
  const std::string_view wanted = arguments.text(0);
  const size_t at = !part.is_valid ? std::string_view::npos
                    : from_end     ? part.text.rfind(wanted)
                                   : part.text.find(wanted);
  if (at != std::string_view::npos)
    return Value::integer(part.start + count_code_points(part.text.substr(0, at)));
  if (must_exist) fail("substring not found");
  return Value::integer(-1);
}

Value count(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("count", call);
  const Arguments arguments("count", call, {"sub", "start", "end"}, 1);
  const TextPart part = part_of(self.as_text(), arguments, 1, 2);
  interpreter.run().charge_bytes(self.as_text().size());
  return Value::integer(part.is_valid ? count_occurrences(part.text, arguments.text(0)) : 0);
}

Value replace(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "replace");
  require_positional("replace", call);
  const Arguments arguments("replace", call, {"old", "new", "count"}, 2);
  return make_text(interpreter.run(), replaced(interpreter.run(), self.as_text(), arguments.text(0),
                                               arguments.text(1), arguments.integer(2, -1)));
}

template <bool from_end>
Value split(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "split");
  const Arguments arguments("split", call, {"sep", "maxsplit"});
  return list_of_texts(interpreter.run(),
                       split_text(interpreter.run(), self.as_text(), arguments.optional_text(0),
                                  arguments.integer(1, -1), from_end));
}

Value splitlines(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "splitlines");
  const Arguments arguments("splitlines", call, {"keepends"});
  interpreter.run().charge_bytes(self.as_text().size());
  return list_of_texts(interpreter.run(), split_lines(self.as_text(), arguments.flag(0)));
}

template <bool from_end>
Value partition(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "partition");
  require_positional("partition", call);
  const Arguments arguments("partition", call, {"sep"}, 1);
  const std::string_view text = self.as_text(), separator = arguments.text(0);
  if (separator.empty()) fail("empty separator");
  interpreter.run().charge_bytes(text.size());
  const size_t at = from_end ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts{Value::text(text), Value::text(""), Value::text("")};
  if (at != std::string_view::npos)
    parts = {Value::text(text.substr(0, at)), Value::text(separator),
             Value::text(text.substr(at + separator.size()))};
  else if (from_end)
    std::swap(parts[0], parts[2]);
  return make_list(interpreter.run(), std::move(parts), Type::kTuple);
}

Value join(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "join");
  require_positional("join", call);
  const Arguments arguments("join", call, {"iterable"}, 1);
  std::string text;
  bool is_first = true;
  for (const Value& item : items_of(interpreter.run(), arguments[0])) {
    if (!item.is_string())
      fail("sequence item: expected str instance, ", type_name(item), " found");
    if (!is_first) text += self.as_text();
    is_first = false;
    text += item.as_text();
    interpreter.run().check_size(text.size());
  }
  return make_text(interpreter.run(), std::move(text));
}

Value format(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  refuse_markup(self, "format");
  return format_braces(interpreter, self.as_text(), call);
}

template <char align>
Value justify(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("center", call);
  const Arguments arguments("center", call, {"width", "fillchar"}, 1);
  return same_kind(interpreter, self,
                   justified(interpreter.run(), self.as_text(), arguments.integer(0),
                             arguments.text(1, " "), align));
}

Value zfill(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  require_positional("zfill", call);
  const Arguments arguments("zfill", call, {"width"}, 1);
  const std::string_view text = self.as_text();
  const bool has_sign = text.starts_with("-") || text.starts_with("+");
  const std::string zeros =
      justified(interpreter.run(), "",
                std::max<int64_t>(arguments.integer(0), 0) - count_code_points(text), "0", '<');
  return same_kind(
      interpreter, self,
      std::string(text.substr(0, has_sign)) + zeros + std::string(text.substr(has_sign)));
}

template <bool at_end>
Value remove_affix(Interpreter&, const Value& self, const CallArguments& call) {
  require_positional("removeprefix", call);
  const Arguments arguments("removeprefix", call, {"prefix"}, 1);
  std::string_view text = self.as_text();
  const std::string_view affix = arguments.text(0);
  if (at_end ? text.ends_with(affix) : text.starts_with(affix))
    text = at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  return Value::text(text, self.is_markup());
}

Value is_ascii(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("isascii", call);
  for (const char c : self.as_text())
    if (static_cast<unsigned char>(c) > 0x7F) return Value::boolean(false);
  return Value::boolean(true);
}

Value is_titled(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("istitle", call);
  const std::string_view text = self.as_text();
  bool is_inside = false, has_any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_capital = is_upper(c) || is_title(c);
    if (is_capital ? is_inside : is_lower(c) && !is_inside) return Value::boolean(false);
    is_inside = is_capital || is_lower(c);
    has_any |= is_inside;
  }
  return Value::boolean(has_any);
}

Value is_identifier(Interpreter&, const Value& self, const CallArguments& call) {
  require_no_arguments("isidentifier", call);
  const std::string_view text = self.as_text();
  for (size_t at = 0; at < text.size();) {
    const bool is_first = at == 0;
    const char32_t c = next_code_point(text, at);
    if (is_first ? !is_name_start(c) : !is_name_part(c)) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

constexpr auto kMethods = std::to_array<NamedCall>({
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"replace", replace},
    {"upper", recased<to_upper>},
    {"lower", recased<to_lower>},
    {"title", recased<to_title>},
    {"capitalize", recased<to_capitalized>},
    {"swapcase", recased<swap_case>},
    {"join", join},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"format", format},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"center", justify<'^'>},
    {"ljust", justify<'<'>},
    {"rjust", justify<'>'>},
    {"zfill", zfill},
    {"isalpha", all_of<is_alpha>},
    {"isdigit", all_of<is_digit>},
    {"isdecimal", all_of<is_decimal>},
    {"isalnum", all_of<is_alnum>},
    {"isspace", all_of<is_space>},
    {"isprintable", all_of<is_printable>},
    {"isascii", is_ascii},
    {"islower", has_case<is_lower, is_upper>},
    {"isupper", has_case<is_upper, is_lower>},
    {"istitle", is_titled},
    {"isidentifier", is_identifier},
    {"encode"},
    {"casefold"},
    {"expandtabs"},
    {"format_map"},
    {"isnumeric"},
    {"maketrans"},
    {"translate"},
});
}  // namespace

std::span<const NamedCall> string_methods() {
  return kMethods;
}

}  // namespace kvcal::jinja
