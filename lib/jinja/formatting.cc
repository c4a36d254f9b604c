#include "jinja/formatting.h"

#include <algorithm>
#include <cmath>

#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// The printf-style language of str. Source: CPython, Objects/unicodeobject.c, PyUnicode_Format.
class PercentFormatter {
 public:
  PercentFormatter(Run& run, std::string_view format, const Value& values)
      : run_(run), format_(format), values_(values), out_(run.text()) {}

  Text format() {
    while (at_ < format_.size()) {
      const size_t percent = format_.find('%', at_);
      out_ += format_.substr(at_, percent == std::string_view::npos ? percent : percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      append_field();
      run_.check_size(out_.size());
    }
    // Python takes for a mapping whatever can be subscripted.
    const bool is_mapping = values_.is(Type::kDict) || values_.is(Type::kList) ||
                            values_.is(Type::kRange) || values_.is_undefined();
    if (!is_mapping && used_ < num_values())
      fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  size_t num_values() const {
    return values_.is(Type::kTuple) ? values_.as<List>().items.size() : 1;
  }

  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format '", format_, "'");
    return format_[at_];
  }

  Value next_value() {
    if (used_ >= num_values()) fail("not enough arguments for format string");
    ++used_;
    return values_.is(Type::kTuple) ? values_.as<List>().items[used_ - 1] : values_;
  }

  int64_t next_number(int64_t limit) {
    if (peek() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integral()) fail("* wants int");
      if (value.as_integer() > limit || value.as_integer() < -limit) fail("a width past ", limit);
      return value.as_integer();
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + (format_[at_++] - '0');
      if (number > limit) fail("a width past ", limit, " in a format string");
    }
    return number;
  }

  void append_field() {
    run_.charge();
    if (peek() == '%') {
      ++at_;
      out_ += '%';
      return;
    }
    Value named;
    if (peek() == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!values_.is(Type::kDict)) fail("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
      const Value* found = values_.as<Dict>().find(run_, key);
      if (found == nullptr) fail("key ", repr_of(run_, key), " is missing");
      named = *found;
      at_ = close + 1;
    }
    FormatSpec spec;
    bool is_left = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      is_left |= peek() == '-';
      spec.has_zeros |= peek() == '0';
      spec.is_alternate |= peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = next_number(1'000'000);
    if (spec.width < 0) {
      is_left = true;
      spec.width = -spec.width;
    }
    if (is_left) spec.align = '<';
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(next_number(400), 0);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    out_ += converted(named.is_missing() ? next_value() : named, spec);
  }

  Text converted(const Value& value, FormatSpec spec) {
    const auto is_one_of = [&](std::string_view types) {
      return types.find(spec.type) != std::string_view::npos;
    };
    if (is_one_of("sr")) {
      Text text = spec.type == 's' ? to_text(run_, value) : to_repr(run_, value);
      if (spec.precision >= 0) text.resize(byte_offset(text, spec.precision));
      spec.has_zeros = false;
      return padded(run_, "", text, spec, '>');
    }
    if (spec.type == 'c') return converted_character(value, spec);
    if (is_one_of("iu")) spec.type = 'd';
    if (is_one_of("dxXo")) return converted_integer(value, spec);
    if (!is_one_of("eEfFgG"))
      fail("unsupported format character '", std::string(1, spec.type), "'");
    require_defined(value);
    if (!value.is_number()) fail("must be real number, not ", type_name(value));
    return formatted(run_, Value::number(value.as_number()), spec);
  }

  Text converted_integer(const Value& value, FormatSpec spec) {
    require_defined(value);
    if (!value.is_number() || (spec.type != 'd' && !value.is_integral()))
      fail("%", std::string(1, spec.type), " format: a real number is required, not ",
           type_name(value));
    const double number = value.as_number();
    if (value.is(Type::kFloat) && !(std::abs(number) < 0x1p63))
      fail("cannot convert ", number, " to a 64-bit int");
    const int64_t integer = value.is_integral() ? value.as_integer() : static_cast<int64_t>(number);
    if (spec.precision < 0) return formatted(run_, Value::integer(integer), spec);
    // A precision is the least number of digits.
    FormatSpec digits{.sign = spec.sign, .has_zeros = true, .type = spec.type};
    digits.width = spec.precision + (integer < 0 || spec.sign != '-' ? 1 : 0);
    FormatSpec outer{.align = spec.align, .width = spec.width};
    return padded(run_, "", formatted(run_, Value::integer(integer), digits), outer, '>');
  }

  Text converted_character(const Value& value, FormatSpec spec) {
    Text text = run_.text();
    if (value.is_integral()) {
      const int64_t c = value.as_integer();
      if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        fail("%c arg not in range(0x110000)");
      append_code_point(text, static_cast<char32_t>(c));
    } else if (value.is_string() && length_of(run_, value) == 1) {
      text = run_.text_of(value);
    } else {
      fail("%c requires int or char");
    }
    spec.has_zeros = false;
    return padded(run_, "", text, spec, '>');
  }

  Run& run_;
  std::string_view format_;
  const Value& values_;
  Text out_;
  size_t at_ = 0, used_ = 0;
};

/// str.format. Source: Python, string.Formatter; Jinja2 3.1, SandboxedFormatter.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, std::string_view format, const CallArguments& arguments)
      : interpreter_(interpreter),
        run_(interpreter.run()),
        format_(format),
        arguments_(arguments),
        out_(run_.text()) {}

  Text format() {
    while (at_ < format_.size()) {
      const char c = format_[at_++];
      if (c != '{' && c != '}') {
        out_ += c;
      } else if (at_ < format_.size() && format_[at_] == c) {
        out_ += c;
        ++at_;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        append_field();
      }
    }
    return std::move(out_);
  }

 private:
  void append_field() {
    run_.charge();
    const size_t close = format_.find('}', at_);
    if (close == std::string_view::npos) fail("expected '}' before end of string");
    std::string_view field = format_.substr(at_, close - at_);
    if (field.find('{') != std::string_view::npos)
      fail("fields within fields of format strings are not supported");
    at_ = close + 1;
    std::string_view spec;
    char conversion = 0;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (field.size() != mark + 2) fail("a conversion in a format string is one letter");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    Value value = field_value(field);
    if (conversion == 'r')
      value = make_text(run_, to_repr(run_, value));
    else if (conversion == 's')
      value = make_text(run_, to_text(run_, value));
    else if (conversion != 0)
      fail("Unknown conversion specifier ", std::string(1, conversion));
    out_ += spec.empty() ? to_text(run_, value) : formatted(run_, value, parse_format_spec(spec));
    run_.check_size(out_.size());
  }

  Value field_value(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    // Only a field that is empty as a whole takes the next number.
    if (end == 0 && !field.empty())
      fail("a field of a format string starts with '", field.substr(0, 1), "'");
    Value value = first_value(field.substr(0, end));
    for (size_t at = end; at < field.size();) {
      if (field[at] == '.') {
        const size_t next = std::min(field.find_first_of(".[", at + 1), field.size());
        if (next == at + 1) fail("Empty attribute in format string");
        value = attribute_of(interpreter_, value, field.substr(at + 1, next - at - 1));
        at = next;
      } else {
        const size_t close = field.find(']', at);
        if (field[at] != '[' || close == std::string_view::npos)
          fail("malformed field '", field, "' in a format string");
        value = item_of(interpreter_, value, key_of(field.substr(at + 1, close - at - 1)));
        at = close + 1;
      }
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
           text.size() < 10;
  }
  static Value key_of(std::string_view text) {
    return is_number(text) ? Value::integer(std::stoll(std::string(text))) : Value::text(text);
  }

  Value first_value(std::string_view name) {
    if (name.empty() || is_number(name)) {
      if (name.empty() ? is_numbered_ == 1 : is_numbered_ == 0 && next_ > 0)
        fail("automatic and manual field numbers are mixed in a format string");
      if (!name.empty()) is_numbered_ = 1;
      const size_t index =
          name.empty() ? next_++ : static_cast<size_t>(std::stoll(std::string(name)));
      if (index >= arguments_.positional.size())
        fail("Replacement index ", index, " out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.named)
      if (equals(run_, Value::text(known), Value::text(name))) return value;
    fail("format string names ", repr_of(run_, name), ", which was not given");
  }

  Interpreter& interpreter_;
  Run& run_;
  std::string_view format_;
  const CallArguments& arguments_;
  Text out_;
  size_t at_ = 0, next_ = 0;
  int is_numbered_ = 0;
};

}  // namespace

Value format_percent(Run& run, std::string_view format, const Value& values) {
  return make_text(run, PercentFormatter(run, format, values).format());
}

Value format_braces(Interpreter& interpreter, std::string_view format,
                    const CallArguments& arguments) {
  return make_text(interpreter.run(), BraceFormatter(interpreter, format, arguments).format());
}

}  // namespace kvcal::jinja
