#include <algorithm>
#include <array>

#include "jinja/access.h"
#include "jinja/arithmetic.h"
#include "jinja/filters.h"
#include "jinja/formatting.h"
#include "jinja/interpreter.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"
#include "jinja/splitting.h"

namespace kvcal::jinja {
namespace {

/// soft_str: texts as they are, safe or not; anything else as str makes it.
Value soft_text(Interpreter& interpreter, const Value& value) {
  return value.is_string() ? value
                           : make_text(interpreter.run(), to_text(interpreter.run(), value));
}

template <std::string (*recase)(std::string_view)>
Value recased(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("this filter", call);
  const Value text = soft_text(interpreter, input);
  interpreter.run().charge(text.as_text().size() / 8);
  return Value::text(interpreter.run().keep(recase(text.as_text())), text.is_markup());
}

/// Words as the title filter cuts them: behind whitespace and any of -({[<.
std::string title_of_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    size_t first = 0;
    if (!word.empty()) next_code_point(word, first);
    out += to_upper(std::string_view(word).substr(0, first)) +
           to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_between =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                        std::string_view::npos);
    if (is_between) {
      flush();
      utf8::append(out, c);
    } else {
      utf8::append(word, c);
    }
  }
  flush();
  return out;
}

Value trim(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("trim", call, {"chars"});
  const Value text = soft_text(interpreter, input);
  const auto characters = arguments.optional_text(0);
  interpreter.run().charge(text.as_text().size() * (characters ? characters->size() : 1) / 64);
  return Value::text(stripped(text.as_text(), characters, true, true), text.is_markup());
}

Value replace(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("replace", call, {"old", "new", "count"}, 2);
  const int64_t count = arguments[2].is_none() ? -1 : arguments.integer(2);
  return make_text(run, replaced(run, text_view(run, input), text_view(run, arguments[0]),
                                 text_view(run, arguments[1]), count));
}

Value indent(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("indent", call, {"width", "first", "blank"});
  require_defined(input);
  if (!input.is_string()) fail("indent needs a str, not ", type_name(input));
  const Value width = arguments.value_or(0, Value::integer(4));
  const std::string indention = width.is_string()
                                    ? std::string(width.as_text())
                                    : justified(run, "", arguments.integer(0, 4), " ", '<');
  const std::string text = std::string(input.as_text()) + "\n";
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    run.check_size(out.size() + indention.size() + line.size());
    if (!is_first) {
      out += '\n';
      if (!line.empty() || arguments.flag(2)) out += indention;
    }
    is_first = false;
    out += line;
  }
  if (arguments.flag(1)) out.insert(0, indention);
  return Value::text(run.keep(std::move(out)), input.is_markup());
}

Value center(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("center", call, {"width"});
  const Value text = soft_text(interpreter, input);
  return Value::text(interpreter.run().keep(justified(interpreter.run(), text.as_text(),
                                                      arguments.integer(0, 80), " ", '^')),
                     text.is_markup());
}

Value wordcount(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("wordcount", call);
  const std::string_view text = text_view(interpreter.run(), input);
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

Value truncate(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("truncate", call, {"length", "killwords", "end", "leeway"});
  const std::string_view end = arguments.text(2, "...");
  const int64_t length = arguments.integer(0, 255), end_length = count_code_points(end);
  const int64_t leeway = arguments[3].is_none() ? 5 : arguments.integer(3);
  if (length < end_length) fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  const auto found = length_of(input);
  if (!found) fail("object of type '", type_name(input), "' has no len()");
  if (*found - leeway <= length) return input;
  if (!input.is_string()) fail("truncate needs a str, not ", type_name(input));
  const std::string_view text = input.as_text();
  std::string_view kept = text.substr(0, byte_offset(text, length - end_length));
  if (!arguments.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return make_text(run, std::string(kept) + std::string(end));
}

Value format(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  if (!call.positional.empty() && !call.named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  Value values = make_list(run, call.positional, Type::kTuple);
  if (!call.named.empty()) {
    auto* dict = run.make<Dict>();
    for (const auto& [name, value] : call.named) dict->set(run, Value::text(name), value);
    values = Value::object(Type::kDict, dict);
  }
  return format_percent(run, soft_text(interpreter, input), values);
}

Value string(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("string", call);
  return soft_text(interpreter, input);
}

Value safe(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("safe", call);
  return Value::text(text_view(interpreter.run(), input), true);
}

template <bool always>
Value escape(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  require_no_arguments("escape", call);
  if (input.is_markup() && !always) return input;
  Run& run = interpreter.run();
  const std::string_view text = text_view(run, input);
  // Before up to five bytes stand for each.
  const auto more = std::ranges::count_if(
      text, [](char c) { return std::string_view("&<>'\"").find(c) != std::string_view::npos; });
  run.check_size(text.size() + 4 * static_cast<size_t>(more));
  return Value::text(run.keep(escaped_html(text)), true);
}

Value tojson(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  Run& run = interpreter.run();
  const Arguments arguments("tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensures_ascii = arguments.flag(0), .sorts_keys = arguments.flag(3)};
  if (const Value indent = arguments[1]; !indent.is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    style.indent = indent.is_string() ? std::string(indent.as_text())
                                      : justified(run, "", arguments.integer(1), " ", '<');
  }
  if (const Value separators = arguments[2]; !separators.is_none()) {
    const std::vector<Value> parts = items_of(run, separators);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string())
      fail("tojson(): separators are two texts");
    style.item_separator = parts[0].as_text();
    style.key_separator = parts[1].as_text();
  }
  return make_text(run, to_json(run, input, style));
}

Value default_value(Interpreter&, const Value& input, const CallArguments& call) {
  const Arguments arguments("default", call, {"default_value", "boolean"});
  const bool stands_in = input.is_undefined() || (arguments.flag(1) && !is_true(input));
  return stands_in ? arguments.value_or(0, Value::text("")) : input;
}

Value attribute(Interpreter& interpreter, const Value& input, const CallArguments& call) {
  const Arguments arguments("attr", call, {"name"}, 1);
  require_defined(input);
  const Value found = own_attribute(interpreter, input, arguments.text(0));
  return found.is_missing() ? undefined_part(interpreter.run(), input, arguments[0]) : found;
}

}  // namespace

std::span<const NamedCall> text_filters() {
  static constexpr auto kFilters =
      std::to_array<NamedCall>({{"trim", trim},
                                {"tojson", tojson},
                                {"default", default_value},
                                {"d", default_value},
                                {"upper", recased<to_upper>},
                                {"lower", recased<to_lower>},
                                {"capitalize", recased<to_capitalized>},
                                {"title", recased<title_of_words>},
                                {"replace", replace},
                                {"indent", indent},
                                {"string", string},
                                {"safe", safe},
                                {"escape", escape<false>},
                                {"e", escape<false>},
                                {"forceescape", escape<true>},
                                {"format", format},
                                {"center", center},
                                {"wordcount", wordcount},
                                {"truncate", truncate},
                                {"attr", attribute}});
  return kFilters;
}

}  // namespace kvcal::jinja
