// The methods of str, and the filters and tests that work on texts.
#include <algorithm>

#include "jinja/calls.h"
#include "jinja/text_value.h"
#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

/// Filters work on texts as they are, safe or not, and on what str makes of anything else.
Value text_self(const Call& call) {
  return call.self.is_string() ? call.self : make_text(call.run, to_text(call.run, call.self));
}

/// A text made from self: what was marked safe stays so.
Value same_kind(const Call& call, const Value& self, Text text) {
  return Value::text(call.run.keep(std::move(text)), self.is_markup());
}

/// The text of a method that is not supported for texts marked safe.
std::string_view plain_self(const Call& call) {
  if (call.self.is_markup()) fail(call.native.name, "() of a text marked safe is not supported");
  return call.self_text();
}

template <Casing casing>
Value recased(const Call& call) {
  const Value self = text_self(call);
  return same_kind(call, self, recased(call.run, call.run.text_of(self), casing));
}

template <bool left, bool right>
Value strip(const Call& call) {
  const Value self = text_self(call);
  return Value::text(stripped(call.run, call.run.text_of(self), call.optional_text(0), left, right),
                     self.is_markup());
}

template <bool (*accepts)(char32_t)>
Value all_of(const Call& call) {
  const std::string_view text = call.self_text();
  for (size_t at = 0; at < text.size();)
    if (!accepts(next_code_point(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty());
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value is_cased(const Call& call) {
  return Value::boolean(has_case(call.self_text(), wanted, unwanted));
}

/// The part of a text that methods with start and end look at.
struct TextPart {
  std::string_view text;
  int64_t start = 0;     ///< of the part, in code points
  bool is_valid = true;  ///< false where start lies behind end: nothing is found there, not even ""
};

/// The part of self between the arguments 1 and 2.
TextPart part_of(const Call& call) {
  const std::string_view text = call.self_text();
  if (call[1].is_none() && call[2].is_none()) return {text};
  const int64_t length = count_code_points(text);
  const auto bound = [&](size_t i, int64_t fallback) {
    const int64_t at = call[i].is_none() ? fallback : call.integer(i);
    return std::max<int64_t>(at < 0 ? at + length : at, 0);
  };
  const int64_t first = bound(1, 0), last = std::min(bound(2, length), length);
  if (first > last) return {{}, first, false};
  const size_t begin = byte_offset(text, first);
  return {text.substr(begin, byte_offset(text.substr(begin), last - first)), first};
}

/// startswith and endswith: one text or a tuple of them, and the part of self to look at.
template <bool at_end>
Value has_affix(const Call& call) {
  const TextPart part = part_of(call);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      fail(call.native.name, " first arg must be str or a tuple of str, not ", type_name(affix));
    if (!part.is_valid) return false;
    call.run.charge();
    const std::string_view wanted = call.run.text_of(affix);
    return at_end ? part.text.ends_with(wanted) : part.text.starts_with(wanted);
  };
  if (!call[0].is(Type::kTuple)) return Value::boolean(matches(call[0]));
  return Value::boolean(std::ranges::any_of(call[0].as<List>().items, matches));
}

template <bool from_end, bool must_exist>
Value find(const Call& call) {
  const TextPart part = part_of(call);
  if (part.is_valid)
    if (const auto at = place_of(call.run, part.text, call.text(0), from_end))
      return Value::integer(part.start + count_code_points(part.text.substr(0, *at)));
  if (must_exist) fail("substring not found");
  return Value::integer(-1);
}

Value count(const Call& call) {
  const TextPart part = part_of(call);
  return Value::integer(part.is_valid ? count_occurrences(call.run, part.text, call.text(0)) : 0);
}

Value replace(const Call& call) {
  return make_text(call.run, replaced(call.run, plain_self(call), call.text(0), call.text(1),
                                      call.integer(2, -1)));
}

Value replace_filter(const Call& call) {
  const auto text = [&](const Value& value) { return text_view(call.run, value); };
  const int64_t count = call[2].is_none() ? -1 : call.integer(2);
  return make_text(call.run,
                   replaced(call.run, text(call.self), text(call[0]), text(call[1]), count));
}

template <bool from_end>
Value split(const Call& call) {
  return make_list(call.run, split_text(call.run, plain_self(call), call.optional_text(0),
                                        call.integer(1, -1), from_end));
}

Value splitlines(const Call& call) {
  return make_list(call.run, split_lines(call.run, plain_self(call), call.flag(0)));
}

template <bool from_end>
Value partition(const Call& call) {
  const std::string_view text = plain_self(call), separator = call.text(0);
  if (separator.empty()) fail("empty separator");
  const auto at = place_of(call.run, text, separator, from_end);
  const Value all = Value::text(text), nothing = Value::text("");
  if (at)
    return make_list(call.run,
                     {Value::text(text.substr(0, *at)), Value::text(separator),
                      Value::text(text.substr(*at + separator.size()))},
                     Type::kTuple);
  if (from_end) return make_list(call.run, {nothing, nothing, all}, Type::kTuple);
  return make_list(call.run, {all, nothing, nothing}, Type::kTuple);
}

Value join_items(const Call& call) {
  const std::string_view separator = plain_self(call);
  Text text(call.run);
  bool is_first = true;
  for (const Value& item : items_of(call.run, call[0])) {
    if (!item.is_string())
      fail("sequence item: expected str instance, ", type_name(item), " found");
    if (!is_first) text += separator;
    is_first = false;
    text += call.run.text_of(item);
  }
  return make_text(call.run, std::move(text));
}

Value format(const Call& call) {
  return format_braces(call.run, plain_self(call), call.given);
}

Value format_filter(const Call& call) {
  const auto& [positional, named] = call.given;
  if (!positional.empty() && !named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  const Value values =
      named.empty() ? make_list(call.run, positional, Type::kTuple) : make_dict(call.run, named);
  if (call.self.is_markup()) fail("formatting a text marked safe is not supported");
  return format_percent(call.run, text_view(call.run, call.self), values);
}

template <char align>
Value justify(const Call& call) {
  const Value self = text_self(call);
  return same_kind(
      call, self,
      justified(call.run, call.run.text_of(self), call.integer(0, 80), call.text(1, " "), align));
}

template <bool at_end>
Value remove_affix(const Call& call) {
  std::string_view text = call.self_text();
  const std::string_view affix = call.text(0);
  if (at_end ? text.ends_with(affix) : text.starts_with(affix))
    text = at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  return Value::text(text, call.self.is_markup());
}

/// One level of indentation: a text, or a number of spaces.
std::string_view indentation(const Call& call, size_t i, int64_t fallback) {
  if (call[i].is_string()) return call.text(i);
  Text spaces(call.run);
  spaces.repeat(" ", static_cast<uint64_t>(std::max<int64_t>(call.integer(i, fallback), 0)));
  return call.run.keep(std::move(spaces));
}

Value indent(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_string()) fail("indent needs a str, not ", type_name(call.self));
  const std::string_view indention = indentation(call, 0, 4);
  Text text(call.run, call.self_text());
  text += '\n';
  Text out(call.run, call.flag(1) ? indention : "");
  bool is_first = true;
  for (const Value& part : split_lines(call.run, text, false)) {
    const std::string_view line = call.run.text_of(part);
    if (!is_first) {
      out += '\n';
      if (!line.empty() || call.flag(2)) out += indention;
    }
    is_first = false;
    out += line;
  }
  return same_kind(call, call.self, std::move(out));
}

Value wordcount(const Call& call) {
  const std::string_view text = text_view(call.run, call.self);
  int64_t count = 0;
  bool is_inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_part = c == '_' || is_alnum(c);
    count += is_part && !is_inside;
    is_inside = is_part;
  }
  return Value::integer(count);
}

Value truncate(const Call& call) {
  const std::string_view end = call.text(2, "...");
  const int64_t length = call.integer(0, 255), end_length = count_code_points(end);
  const int64_t leeway = call[3].is_none() ? 5 : call.integer(3);
  if (length < end_length) fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  if (!call.self.is_string()) fail("truncate needs a str, not ", type_name(call.self));
  if (*length_of(call.run, call.self) - leeway <= length) return call.self;
  const std::string_view text = call.self_text();
  std::string_view kept = text.substr(0, byte_offset(text, length - end_length));
  if (!call.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  Text out(call.run, kept);
  out += end;
  return make_text(call.run, std::move(out));
}

Value safe(const Call& call) {
  return Value::text(text_view(call.run, call.self), true);
}

template <bool always>
Value escape(const Call& call) {
  if (call.self.is_markup() && !always) return call.self;
  const std::string_view text = text_view(call.run, call.self);
  return make_text(call.run, escaped_html(call.run, text), true);
}

Value tojson(const Call& call) {
  JsonStyle style{.ensures_ascii = call.flag(0), .sorts_keys = call.flag(3)};
  if (!call[1].is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    style.indent = indentation(call, 1, 0);
  }
  if (const Value separators = call[2]; !separators.is_none()) {
    const Values parts = items_of(call.run, separators);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string())
      fail("tojson(): separators are two texts");
    style.item_separator = call.run.text_of(parts[0]);
    style.key_separator = call.run.text_of(parts[1]);
  }
  return make_text(call.run, to_json(call.run, call.self, style));
}

Value default_value(const Call& call) {
  const bool stands_in = call.self.is_undefined() || (call.flag(1) && !is_true(call.self));
  return stands_in ? call.value_or(0, Value::text("")) : call.self;
}

Value attribute(const Call& call) {
  require_defined(call.self);
  const Value found = own_attribute(call.run, call.self, call.text(0));
  return found.is_missing() ? undefined_part(call.run, call.self, call[0]) : found;
}

constexpr Native kMethods[] = {
    {"strip", "chars=, /", strip<true, true>},
    {"lstrip", "chars=, /", strip<true, false>},
    {"rstrip", "chars=, /", strip<false, true>},
    {"split", "sep=, maxsplit=", split<false>},
    {"rsplit", "sep=, maxsplit=", split<true>},
    {"splitlines", "keepends=", splitlines},
    {"startswith", "prefix, start=, end=, /", has_affix<false>},
    {"endswith", "suffix, start=, end=, /", has_affix<true>},
    {"replace", "old, new, count=, /", replace},
    {"upper", "", recased<Casing::kUpper>},
    {"lower", "", recased<Casing::kLower>},
    {"title", "", recased<Casing::kTitle>},
    {"capitalize", "", recased<Casing::kCapitalized>},
    {"join", "iterable, /", join_items},
    {"find", "sub, start=, end=, /", find<false, false>},
    {"rfind", "sub, start=, end=, /", find<true, false>},
    {"index", "sub, start=, end=, /", find<false, true>},
    {"rindex", "sub, start=, end=, /", find<true, true>},
    {"count", "sub, start=, end=, /", count},
    {"format", "...", format},
    {"partition", "sep, /", partition<false>},
    {"rpartition", "sep, /", partition<true>},
    {"removeprefix", "prefix, /", remove_affix<false>},
    {"removesuffix", "suffix, /", remove_affix<true>},
    {"center", "width, fillchar=, /", justify<'^'>},
    {"ljust", "width, fillchar=, /", justify<'<'>},
    {"rjust", "width, fillchar=, /", justify<'>'>},
    {"isalpha", "", all_of<is_alpha>},
    {"isdigit", "", all_of<is_digit>},
    {"isalnum", "", all_of<is_alnum>},
    {"isspace", "", all_of<is_space>},
    {"islower", "", is_cased<is_lower, is_upper>},
    {"isupper", "", is_cased<is_upper, is_lower>},
};

constexpr Native kFilters[] = {
    {"trim", "chars=", strip<true, true>},
    {"tojson", "ensure_ascii=, indent=, separators=, sort_keys=", tojson},
    {"default", "default_value=, boolean=", default_value},
    {"d", "default_value=, boolean=", default_value},
    {"upper", "", recased<Casing::kUpper>},
    {"lower", "", recased<Casing::kLower>},
    {"capitalize", "", recased<Casing::kCapitalized>},
    {"title", "", recased<Casing::kTitleWords>},
    {"replace", "old, new, count=", replace_filter},
    {"indent", "width=, first=, blank=", indent},
    {"string", "", text_self},
    {"safe", "", safe},
    {"escape", "", escape<false>},
    {"e", "", escape<false>},
    {"forceescape", "", escape<true>},
    {"format", "...", format_filter},
    {"center", "width=", justify<'^'>},
    {"wordcount", "", wordcount},
    {"truncate", "length=, killwords=, end=, leeway=", truncate},
    {"attr", "name", attribute},
};

}  // namespace

std::span<const Native> string_methods() {
  return kMethods;
}
std::span<const Native> text_filters() {
  return kFilters;
}
}  // namespace kvcal::jinja
