#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvcal {

/// CLI11 takes a number with a leading zero for an octal one.
inline bool has_leading_zero(std::string_view text) {
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/// What is wrong with text as a number from least to most, which it must be from its first to its
/// last character; empty: nothing. Infinities, NaN and what Number cannot hold are none.
template <class Number>
std::string number_fault(const std::string& text, Number least, Number most) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool is_number = error == std::errc() && stop == end && !has_leading_zero(text);
  if constexpr (std::is_floating_point_v<Number>) is_number = is_number && std::isfinite(value);
  if (is_number && value >= least && value <= most) return "";
  std::ostringstream fault;
  fault << "found '" << text << "', expected "
        << (std::is_floating_point_v<Number> ? "a number" : "an integer") << " from " << least
        << " to " << most;
  return fault.str();
}

/// Adds a number from least to most. target: a Number, or an optional one.
template <class Number, class Target>
CLI::Option* add_number_to(CLI::App& command, const std::string& name, Target& target,
                           const std::string& help, Number least, Number most) {
  std::ostringstream range;  // as CLI11 writes one; command_description.cc reads it
  range << CLI::detail::type_name<Number>() << " in [" << least << " - " << most << "]";
  return command.add_option(name, target, help)
      ->check(CLI::Validator(
          [least, most](const std::string& text) { return number_fault(text, least, most); },
          range.str()));
}

/// The same for a number whose help shows its default.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& target,
                        const std::string& help, std::type_identity_t<Number> least,
                        std::type_identity_t<Number> most) {
  return add_number_to<Number>(command, name, target, help, least, most)->capture_default_str();
}

/// Adds a number that is kept as text. parse: throws Error for what is none; the command calls it
/// again for the value.
inline CLI::Option* add_number_text(CLI::App& command, const std::string& name, std::string& target,
                                    const std::string& help,
                                    std::function<void(const std::string&)> parse) {
  return command.add_option(name, target, help)
      ->check(CLI::Validator(
          [parse = std::move(parse)](const std::string& text) -> std::string {
            if (has_leading_zero(text)) return "found '" + text + "', expected no leading zero";
            try {
              parse(text);
              return "";
            } catch (const std::exception& error) {
              return error.what();
            }
          },
          "NUMBER"));
}

}  // namespace kvcal
