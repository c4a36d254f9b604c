// The methods of str, and the filters and tests that work on texts.
#include <algorithm>
#include <array>

#include "jinja/formatting.h"
#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"
#include "jinja/splitting.h"

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

template <Text (*recase)(Run&, std::string_view)>
Value recased(const Call& call) {
  const Value self = text_self(call);
  return same_kind(call, self, recase(call.run, call.run.text_of(self)));
}

template <bool left, bool right>
Value strip(const Call& call) {
  const Value self = text_self(call);
  return Value::text(stripped(call.run, call.run.text_of(self), call.optional_text(0), left, right),
                     self.is_markup());
}

/// text, whose code points are looked up in Unicode's tables: far slower than other reading.
std::string_view looked_up(const Call& call, std::string_view text) {
  call.run.charge(text.size() / 8);
  return text;
}

template <bool (*accepts)(char32_t)>
Value all_of(const Call& call) {
  const std::string_view text = looked_up(call, call.self_text());
  for (size_t at = 0; at < text.size();)
    if (!accepts(next_code_point(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty() || accepts == is_printable);
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value has_case(const Call& call) {
  const std::string_view text = looked_up(call, text_view(call.run, call.self));
  bool has_any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (unwanted(c) || is_title(c)) return Value::boolean(false);
    has_any |= wanted(c);
  }
  return Value::boolean(has_any);
}

/// startswith and endswith: one text or a tuple of them, and the part of self to look at.
template <bool at_end>
Value has_affix(const Call& call) {
  const TextPart part = part_of(call, 1, 2);
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
  const TextPart part = part_of(call, 1, 2);
  const size_t at = part.is_valid ? Finder(call.run, call.text(0), from_end).find(part.text)
                                  : std::string_view::npos;
  if (at != std::string_view::npos)
    return Value::integer(part.start + count_code_points(part.text.substr(0, at)));
  if (must_exist) fail("substring not found");
  return Value::integer(-1);
}

Value count(const Call& call) {
  const TextPart part = part_of(call, 1, 2);
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
  const size_t at = Finder(call.run, separator, from_end).find(text);
  const Value all = Value::text(text), nothing = Value::text("");
  if (at != std::string_view::npos)
    return make_list(call.run,
                     {Value::text(text.substr(0, at)), Value::text(separator),
                      Value::text(text.substr(at + separator.size()))},
                     Type::kTuple);
  if (from_end) return make_list(call.run, {nothing, nothing, all}, Type::kTuple);
  return make_list(call.run, {all, nothing, nothing}, Type::kTuple);
}

Value join_items(const Call& call) {
  const std::string_view separator = plain_self(call);
  Text text = call.run.text();
  bool is_first = true;
  for (const Value& item : items_of(call.run, call[0])) {
    if (!item.is_string())
      fail("sequence item: expected str instance, ", type_name(item), " found");
    if (!is_first) text += separator;
    is_first = false;
    call.run.check_size(text.size() + item.text_size());
    text += call.run.text_of(item);
  }
  return make_text(call.run, std::move(text));
}

Value format(const Call& call) {
  return format_braces(call.interpreter, plain_self(call), call.given);
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

Value zfill(const Call& call) {
  const std::string_view text = call.self_text();
  const size_t sign = text.starts_with("-") || text.starts_with("+") ? 1 : 0;
  const int64_t missing = std::max<int64_t>(call.integer(0), 0) - count_code_points(text);
  Text out = call.run.text(text.substr(0, sign));
  out += justified(call.run, "", missing, "0", '<');
  out += text.substr(sign);
  return same_kind(call, call.self, std::move(out));
}

template <bool at_end>
Value remove_affix(const Call& call) {
  std::string_view text = call.self_text();
  const std::string_view affix = call.text(0);
  if (at_end ? text.ends_with(affix) : text.starts_with(affix))
    text = at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  return Value::text(text, call.self.is_markup());
}

Value is_ascii(const Call& call) {
  return Value::boolean(std::ranges::none_of(
      call.self_text(), [](char c) { return static_cast<unsigned char>(c) > 0x7F; }));
}

Value is_titled(const Call& call) {
  const std::string_view text = looked_up(call, call.self_text());
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

Value is_identifier(const Call& call) {
  const std::string_view text = looked_up(call, call.self_text());
  for (size_t at = 0; at < text.size();) {
    const bool is_first = at == 0;
    const char32_t c = next_code_point(text, at);
    if (is_first ? !is_name_start(c) : !is_name_part(c)) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

/// Words as the title filter cuts them: behind whitespace and any of -({[<.
Text title_of_words(Run& run, std::string_view text) {
  Text out = run.text(), word = run.text();
  const auto flush = [&] {
    run.charge();
    size_t first = 0;
    if (!word.empty()) next_code_point(word, first);
    out += to_upper(run, std::string_view(word).substr(0, first));
    out += to_lower(run, std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_between =
        is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
    if (is_between) flush();
    append_code_point(is_between ? out : word, c);
  }
  flush();
  return out;
}

/// One level of indentation: a text, or a number of spaces.
std::string_view indentation(const Call& call, size_t i, int64_t fallback) {
  if (call[i].is_string()) return call.text(i);
  return call.run.keep(justified(call.run, "", call.integer(i, fallback), " ", '<'));
}

Value indent(const Call& call) {
  require_defined(call.self);
  if (!call.self.is_string()) fail("indent needs a str, not ", type_name(call.self));
  const std::string_view indention = indentation(call, 0, 4);
  Text text = call.run.text(call.self_text());
  text += '\n';
  Text out = call.run.text(call.flag(1) ? indention : "");
  bool is_first = true;
  for (const Value& part : split_lines(call.run, text, false)) {
    const std::string_view line = call.run.text_of(part);
    call.run.check_size(out.size() + indention.size() + line.size());
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
  const std::string_view text = looked_up(call, text_view(call.run, call.self));
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
  if (required_length(call.run, call.self) - leeway <= length) return call.self;
  if (!call.self.is_string()) fail("truncate needs a str, not ", type_name(call.self));
  const std::string_view text = call.self_text();
  std::string_view kept = text.substr(0, byte_offset(text, length - end_length));
  if (!call.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  Text out = call.run.text(kept);
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
  // The size is checked before up to five bytes stand for each.
  const auto more = std::ranges::count_if(
      text, [](char c) { return std::string_view("&<>'\"").find(c) != std::string_view::npos; });
  call.run.check_size(text.size() + 4 * static_cast<size_t>(more));
  return Value::text(call.run.keep(escaped_html(call.run, text)), true);
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
  const Value found = own_attribute(call.interpreter, call.self, call.text(0));
  return found.is_missing() ? undefined_part(call.run, call.self, call[0]) : found;
}

constexpr auto kMethods = std::to_array<Native>({
    {"strip", "chars=, /", strip<true, true>},
    {"lstrip", "chars=, /", strip<true, false>},
    {"rstrip", "chars=, /", strip<false, true>},
    {"split", "sep=, maxsplit=", split<false>},
    {"rsplit", "sep=, maxsplit=", split<true>},
    {"splitlines", "keepends=", splitlines},
    {"startswith", "prefix, start=, end=, /", has_affix<false>},
    {"endswith", "suffix, start=, end=, /", has_affix<true>},
    {"replace", "old, new, count=, /", replace},
    {"upper", "", recased<to_upper>},
    {"lower", "", recased<to_lower>},
    {"title", "", recased<to_title>},
    {"capitalize", "", recased<to_capitalized>},
    {"swapcase", "", recased<swap_case>},
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
    {"zfill", "width, /", zfill},
    {"isalpha", "", all_of<is_alpha>},
    {"isdigit", "", all_of<is_digit>},
    {"isdecimal", "", all_of<is_decimal>},
    {"isalnum", "", all_of<is_alnum>},
    {"isspace", "", all_of<is_space>},
    {"isprintable", "", all_of<is_printable>},
    {"isascii", "", is_ascii},
    {"islower", "", has_case<is_lower, is_upper>},
    {"isupper", "", has_case<is_upper, is_lower>},
    {"istitle", "", is_titled},
    {"isidentifier", "", is_identifier},
    {"encode"},
    {"casefold"},
    {"expandtabs"},
    {"format_map"},
    {"isnumeric"},
    {"maketrans"},
    {"translate"},
});

constexpr auto kFilters = std::to_array<Native>({
    {"trim", "chars=", strip<true, true>},
    {"tojson", "ensure_ascii=, indent=, separators=, sort_keys=", tojson},
    {"default", "default_value=, boolean=", default_value},
    {"d", "default_value=, boolean=", default_value},
    {"upper", "", recased<to_upper>},
    {"lower", "", recased<to_lower>},
    {"capitalize", "", recased<to_capitalized>},
    {"title", "", recased<title_of_words>},
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
});

constexpr auto kTests = std::to_array<Native>(
    {{"lower", "", has_case<is_lower, is_upper>}, {"upper", "", has_case<is_upper, is_lower>}});

}  // namespace

std::span<const Native> string_methods() {
  return kMethods;
}
std::span<const Native> text_filters() {
  return kFilters;
}
std::span<const Native> text_tests() {
  return kTests;
}

}  // namespace kvcal::jinja
