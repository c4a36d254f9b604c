// format % values and format.format(…): fields, and how a number or text is laid out in one.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/text.h"
#include "jinja/text_value.h"
#include "jinja/value_operations.h"

namespace kvcal::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000, kMaxPrecision = 400;

/// [[fill]align][sign][0][width][,][.precision][type]. Source: Python, string, "Format
/// specification mini-language".
struct FormatSpec {
  std::string_view fill = " ";
  char align = 0;  ///< '<', '>', '^' or 0
  char sign = '-';
  bool has_zeros = false, has_commas = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

bool is_one_of(char c, std::string_view set) {
  return c != 0 && set.find(c) != std::string_view::npos;
}

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto next = [&](std::string_view set) -> char {
    return at < text.size() && is_one_of(text[at], set) ? text[at++] : '\0';
  };
  const auto read_number = [&](int64_t limit) {
    int64_t value = 0;
    while (const char digit = next("0123456789"))
      if (value = value * 10 + (digit - '0'); value > limit)
        fail("format specification '", text, "' asks for more than ", limit, " places");
    return value;
  };
  size_t after_fill = 0;
  if (!text.empty()) next_code_point(text, after_fill);
  if (after_fill < text.size() && is_one_of(text[after_fill], "<>^")) {
    spec.fill = text.substr(0, after_fill);
    at = after_fill;
  }
  spec.align = next("<>^");
  if (const char sign = next("+- ")) spec.sign = sign;
  spec.has_zeros = next("0") != 0;
  spec.width = read_number(kMaxWidth);
  spec.has_commas = next(",") != 0;
  if (next(".") != 0) spec.precision = read_number(kMaxPrecision);
  spec.type = next("sdboxXeEfFgG%");
  if (at != text.size())
    fail("format specification '", text, "' is not supported in chat templates");
  return spec;
}

/// 1234567 → 1,234,567; only the whole part of a number is grouped.
std::string grouped(std::string digits) {
  size_t whole = std::min(digits.find_first_of(".e"), digits.size());
  for (; whole > 3; whole -= 3) digits.insert(whole - 3, ",");
  return digits;
}

std::string integer_digits(uint64_t magnitude, char type) {
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : is_one_of(type, "xX") ? 16 : 10;
  std::array<char, 72> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr;
  std::string digits(buffer.data(), end);
  return type == 'X' ? ascii_upper(digits) : digits;
}

std::string float_digits(double magnitude, const FormatSpec& spec) {
  if (spec.type == 0 && spec.precision < 0) return float_text(magnitude);
  if (spec.type == 0) fail("a precision without a type is not supported in format specifications");
  const bool is_percent = spec.type == '%';
  const std::string format = std::string("%.*") + (is_percent ? 'f' : spec.type);
  std::array<char, 1024> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format.c_str(),
                static_cast<int>(spec.precision < 0 ? 6 : spec.precision),
                is_percent ? magnitude * 100 : magnitude);
  return std::string(buffer.data()) + (is_percent ? "%" : "");
}

/// body with fill up to width code points; the sign of a number stays before zeros.
void append_padded(Text& out, std::string_view sign, std::string_view body, const FormatSpec& spec,
                   char align) {
  const int64_t missing =
      std::max<int64_t>(spec.width - count_code_points(sign) - count_code_points(body), 0);
  const bool has_zeros = spec.has_zeros && spec.align == 0 && align == '>';
  if (has_zeros && spec.has_commas)
    fail("zero padding together with commas is not supported in format specifications");
  if (spec.align != 0) align = spec.align;
  const int64_t left = has_zeros || align == '<' ? 0 : align == '>' ? missing : missing / 2;
  out.repeat(spec.fill, static_cast<uint64_t>(left));
  out += sign;
  if (has_zeros) out.repeat("0", static_cast<uint64_t>(missing));
  out += body;
  if (!has_zeros) out.repeat(spec.fill, static_cast<uint64_t>(missing - left));
}

void append_number(Run& run, Text& out, const Value& value, const FormatSpec& spec) {
  const bool is_integer = value.is_integral() && (spec.type == 0 || is_one_of(spec.type, "bdoxX"));
  if (!is_integer && spec.type != 0 && !is_one_of(spec.type, "eEfFgG%"))
    fail("Unknown format code '", std::string(1, spec.type), "' for a ", type_name(value));
  if (is_integer && spec.precision >= 0)
    fail("a precision of an int is not supported in format specifications");
  const int64_t integer = is_integer ? value.as_integer() : 0;
  const double number = value.as_number();
  const bool is_negative = is_integer ? integer < 0 : std::signbit(number) && !std::isnan(number);
  run.charge(8);  // digits are slow to make, also few of them
  const uint64_t magnitude =
      integer < 0 ? uint64_t{0} - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
  std::string digits =
      is_integer ? integer_digits(magnitude, spec.type) : float_digits(std::abs(number), spec);
  if (spec.has_commas) digits = grouped(std::move(digits));
  const std::string_view sign = is_negative        ? "-"
                                : spec.sign == '-' ? ""
                                : spec.sign == '+' ? "+"
                                                   : " ";
  append_padded(out, sign, digits, spec, '>');
}

void append_text(Text& out, std::string_view text, const FormatSpec& spec, char align) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, spec.precision));
  append_padded(out, "", text, spec, align);
}

/// A format that is filled from its begin to its end.
class Formatter {
 protected:
  Formatter(Run& run, std::string_view format) : run_(run), format_(format), out_(run) {}

  /// Copies the text before the next of marks, and passes that; 0 at the end.
  char copy_up_to(std::string_view marks) {
    const size_t mark = std::min(format_.find_first_of(marks, at_), format_.size());
    out_ += format_.substr(at_, mark - at_);
    at_ = mark + 1;
    return mark < format_.size() ? format_[mark] : '\0';
  }

  Run& run_;
  std::string_view format_;
  Text out_;
  size_t at_ = 0;
};

/// The printf-style language of str. Source: CPython, Objects/unicodeobject.c, PyUnicode_Format.
class PercentFormatter : Formatter {
 public:
  PercentFormatter(Run& run, std::string_view format, const Value& values)
      : Formatter(run, format), values_(values) {}

  Text format() {
    while (copy_up_to("%") != '\0') append_field();
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
    int64_t number = 0;
    while (is_one_of(peek(), "0123456789"))
      if (number = number * 10 + (format_[at_++] - '0'); number > limit)
        fail("a width past ", limit, " in a format string");
    return number;
  }

  Value named_value() {
    const size_t close = format_.find(')', at_);
    if (close == std::string_view::npos) fail("incomplete format key");
    if (!values_.is(Type::kDict)) fail("format requires a mapping");
    const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const Value* found = values_.as<Dict>().find(run_, key);
    if (found == nullptr) fail("key ", repr_of(key), " is missing");
    return *found;
  }

  void append_field() {
    run_.charge();
    if (peek() == '%') {
      ++at_;
      out_ += '%';
      return;
    }
    const Value named = peek() == '(' ? named_value() : Value();
    FormatSpec spec;
    for (; is_one_of(peek(), "-+ 0"); ++at_) {
      if (peek() == '-') spec.align = '<';
      spec.has_zeros |= peek() == '0';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = next_number(kMaxWidth);
    if (peek() == '.') {
      ++at_;
      spec.precision = next_number(kMaxPrecision);
    }
    spec.type = peek();
    ++at_;
    append(named.is_missing() ? next_value() : named, spec);
  }

  void append(Value value, FormatSpec spec) {
    if (is_one_of(spec.type, "sr")) {
      const Text text = spec.type == 's' ? to_text(run_, value) : to_repr(run_, value);
      spec.has_zeros = false;
      return append_text(out_, text, spec, '>');
    }
    if (is_one_of(spec.type, "iu")) spec.type = 'd';
    if (!is_one_of(spec.type, "dxXoeEfFgG"))
      fail("format '%", std::string(1, spec.type), "' is not supported in chat templates");
    require_defined(value);
    if (!value.is_number()) fail("must be real number, not ", type_name(value));
    const double number = value.as_number();
    if (value.is(Type::kFloat) && spec.type == 'd') {
      if (!(std::abs(number) < 0x1p63)) fail("cannot convert ", number, " to a 64-bit int");
      value = Value::integer(static_cast<int64_t>(number));
    }
    append_number(run_, out_, value, spec);
  }

  const Value& values_;
  size_t used_ = 0;
};

/// str.format. Source: Python, string.Formatter; Jinja2 3.1, SandboxedFormatter.
class BraceFormatter : Formatter {
 public:
  BraceFormatter(Run& run, std::string_view format, const CallArguments& arguments)
      : Formatter(run, format), arguments_(arguments) {}

  Text format() {
    while (const char c = copy_up_to("{}")) {
      if (at_ < format_.size() && format_[at_] == c) {
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
    at_ = close + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    field = field.substr(0, colon);
    const size_t mark = std::min(field.find('!'), field.size());
    const std::string_view conversion = field.substr(mark), name = field.substr(0, mark);
    if (name.find_first_of("{.[") != std::string_view::npos)
      fail("field '", name,
           "' of a format string: attributes, items and fields within fields are "
           "not supported");
    Value value = value_of(name);
    if (conversion == "!r")
      value = make_text(run_, to_repr(run_, value));
    else if (conversion == "!s")
      value = make_text(run_, to_text(run_, value));
    else if (!conversion.empty())
      fail("Unknown conversion specifier ", conversion);
    if (spec.empty())
      print(run_, value, out_);
    else
      append(value, parse_format_spec(spec));
  }

  void append(const Value& value, const FormatSpec& spec) {
    if (value.is_number()) return append_number(run_, out_, value, spec);
    if (!value.is_string()) fail("a format specification does not fit a ", type_name(value));
    if (!is_one_of(spec.type, "s") && spec.type != 0)
      fail("Unknown format code '", std::string(1, spec.type), "' for a str");
    if (spec.sign != '-' || spec.has_commas || spec.has_zeros)
      fail("a str takes no sign, zeros or commas in its format specification");
    append_text(out_, run_.text_of(value), spec, '<');
  }

  Value value_of(std::string_view name) {
    const auto number = short_index(name);
    if (name.empty() || number) {
      if (name.empty() ? is_numbered_ : next_ > 0)
        fail("automatic and manual field numbers are mixed in a format string");
      is_numbered_ |= number.has_value();
      const size_t index = number ? static_cast<size_t>(*number) : next_++;
      if (index >= arguments_.positional.size())
        fail("Replacement index ", index, " out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.named)
      if (equals(run_, Value::text(known), Value::text(name))) return value;
    fail("format string names ", repr_of(name), ", which was not given");
  }

  const CallArguments& arguments_;
  size_t next_ = 0;
  bool is_numbered_ = false;
};

}  // namespace

Value format_percent(Run& run, std::string_view format, const Value& values) {
  return make_text(run, PercentFormatter(run, format, values).format());
}

Value format_braces(Run& run, std::string_view format, const CallArguments& arguments) {
  return make_text(run, BraceFormatter(run, format, arguments).format());
}

}  // namespace kvcal::jinja
