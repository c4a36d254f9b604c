#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/byte_size.h"
#include "core/read_number.h"
#include "run/devices.h"
#include "run/loaded_model.h"
#include "stored/weights.h"

namespace kvcal {

/// Exit status of the process.
enum class ExitStatus : int {
  kDone = 0,
  kBadInput = 1,
  kUsage = 2,
  kGateMissed = 3,
  kInterrupted = 130
};

/// Thrown by a command that has done its work and found a limit exceeded: what() is a line a limit.
class GateMissed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A run that has ended and said why: the process ends with the status.
class RunEnded : public std::exception {
 public:
  explicit RunEnded(int status) : status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// Adds a subcommand to app; run is set when the user chose it.
using AddCommand = void (*)(CLI::App& app, std::function<void()>& run);
void add_calibrate(CLI::App& app, std::function<void()>& run);
void add_generate(CLI::App& app, std::function<void()>& run);
void add_eval(CLI::App& app, std::function<void()>& run);
void add_engines(CLI::App& app, std::function<void()>& run);
void add_families(CLI::App& app, std::function<void()>& run);
void add_inspect(CLI::App& app, std::function<void()>& run);
void add_quantize(CLI::App& app, std::function<void()>& run);
void add_scales(CLI::App& app, std::function<void()>& run);
void add_convert(CLI::App& app, std::function<void()>& run);
void add_apply(CLI::App& app, std::function<void()>& run);
void add_sweep(CLI::App& app, std::function<void()>& run);
void add_smooth(CLI::App& app, std::function<void()>& run);
void add_synth(CLI::App& app, std::function<void()>& run);
void add_try(CLI::App& app, std::function<void()>& run);
void add_verify(CLI::App& app, std::function<void()>& run);
void add_completion(CLI::App& app, std::function<void()>& run);
void add_man(CLI::App& app, std::function<void()>& run);
void add_help(CLI::App& app, std::function<void()>& run);
void add_version(CLI::App& app, std::function<void()>& run);

/// The largest limit of a mean KL, in nats.
inline constexpr double kMostKl = 1e6;

/// For paths: an empty one is an unset variable of a script.
CLI::Validator is_not_empty();

/// Adds an option whose text must not be empty.
template <class Target>
CLI::Option* add_text(CLI::App& command, const std::string& name, Target& target,
                      const std::string& help) {
  return command.add_option(name, target, help)->check(is_not_empty());
}

/// Adds an option whose help shows its default.
template <class Target>
CLI::Option* add_setting(CLI::App& command, const std::string& name, Target& target,
                         const std::string& help) {
  return command.add_option(name, target, help)->capture_default_str();
}

/// Adds a number from least to most. target: a Number, or an optional one.
template <class Number, class Target>
CLI::Option* add_number_to(CLI::App& command, const std::string& name, Target& target,
                           const std::string& help, Number least, Number most) {
  std::ostringstream range;  // as CLI11 writes one; command_description.cc reads it
  range << CLI::detail::type_name<Number>() << " in [" << least << " - " << most << "]";
  return command.add_option(name, target, help)
      ->check(CLI::Validator(
          [least, most](const std::string& text) {
            Number value{};
            return read_number(text, least, most, value);
          },
          range.str()));
}

/// The same for a number whose help shows its default.
template <class Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& target,
                        const std::string& help, std::type_identity_t<Number> least,
                        std::type_identity_t<Number> most) {
  return add_number_to<Number>(command, name, target, help, least, most)->capture_default_str();
}

/// The check of an option whose number has a text of its own, such as a size. parse: throws Error
/// for what is none.
inline CLI::Validator is_number_text(std::function<void(const std::string&)> parse) {
  return {[parse = std::move(parse)](const std::string& text) -> std::string {
            if (has_leading_zero(text)) return "found '" + text + "', expected no leading zero";
            try {
              parse(text);
              return "";
            } catch (const std::exception& error) {
              return error.what();
            }
          },
          "NUMBER"};
}

/// Adds a number that is kept as text. parse: throws Error for what is none; the command calls it
/// again for the value.
inline CLI::Option* add_number_text(CLI::App& command, const std::string& name, std::string& target,
                                    const std::string& help,
                                    std::function<void(const std::string&)> parse) {
  return command.add_option(name, target, help)->check(is_number_text(std::move(parse)));
}

/// --device, --compute-dtype and --threads.
void add_device_options(CLI::App& command, DeviceOptions& options);
/// --inputs.
void add_inputs_option(CLI::App& command, DeviceOptions& options);
/// --kv-cache-dtype, --scales and --unit-scales.
void add_cache_options(CLI::App& command, CacheOptions& options);

/// --family and --family-file. The choice borrows from the program, and is made while the command
/// line is read.
void add_family_options(CLI::App& command, FamilyChoice& family);

/// "kvcal 0.1.0", what --version prints.
std::string version_text();
/// Sources, compiler and target of this build, as JSON: `--version --json`. Nothing in
/// it depends on the machine it runs on.
std::string version_json();

}  // namespace kvcal
