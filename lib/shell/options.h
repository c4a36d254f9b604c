#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "core/number.h"
#include "shell/description.h"

namespace kvcal {

/// One declaration of an option or argument: what the pages say of it, what Python calls it, and
/// how its value is read. The functions return the option, so that they can be chained.
struct Option : OptionDescription {
  /// What is wrong with a word of the command line; empty: nothing.
  using Check = std::function<std::string(const std::string& word)>;

  std::string spelling;               ///< all names, the old ones too: "-o,--output"
  std::string needed;                 ///< another option, by its long name; empty: none
  std::vector<std::string> excluded;  ///< other options
  std::string freed;                  ///< is not required where this one is given
  bool is_internal = false;           ///< is not of the command line
  bool is_written = false;            ///< names what the command writes
  bool is_boolean = false;            ///< true or false; may be a flag
  bool may_lack_value = false;
  char delimiter = 0;  ///< between the values of one word; 0: none
  Check check;
  std::function<void(const std::vector<std::string>& words)> read;
  std::function<void(Diagnostics&)> fetch;  ///< downloads what the value names
  bool is_given = false;
  std::vector<std::string> words = {};  ///< as given

  bool is_argument() const { return !names.front().starts_with('-'); }
  /// "--output"; "output" of an argument.
  const std::string& name() const { return names.back(); }
  /// The value that words of a command line, or Python, give.
  void give(const std::vector<std::string>& given);

  Option& required() { return set(is_required, true); }
  Option& hidden() { return set(is_hidden, true); }
  /// What only the Python package itself gives.
  Option& internal() { return hidden().set(is_internal, true); }
  Option& program_only() { return set(python_name, ""); }
  /// The argument's name in Python, and where they are not the usual ones, its type and default.
  Option& python(const std::string& name, const std::string& type = "",
                 const std::string& value = "");
  /// Has its place in Python, as arguments have.
  Option& placed_in_python() { return set(has_place_in_python, true); }
  /// A name that is still taken, and shown nowhere.
  Option& old_name(const std::string& name) { return set(spelling, spelling + "," + name); }
  /// A default that is not the target's value.
  Option& shown_default(const std::string& text) { return set(default_value, text); }
  /// A file or folder; written: that the command writes.
  Option& of_kind(ValueKind of);
  Option& written(ValueKind of) { return of_kind(of).set(is_written, true); }
  /// The values, in any case and with '-' for '_'; joined: several with '+' between them.
  Option& choices_of(std::vector<std::string> of, bool joined = false);
  /// The same, as they are written.
  Option& only(std::vector<std::string> of);
  /// Texts must not be empty, and those of a list may be, where nothing else is said.
  Option& may_be_empty() { return set(check, nullptr); }
  Option& not_empty();
  Option& needs(const std::string& other) { return set(needed, other); }
  Option& excludes(std::vector<std::string> others) { return set(excluded, std::move(others)); }
  /// Where it is given, `other` is not required.
  Option& frees(const std::string& other) { return set(freed, other); }

 private:
  template <class Member, class Value>
  Option& set(Member& member, Value&& value) {
    member = std::forward<Value>(value);
    return *this;
  }
};

/// The number in an optional one, or itself.
template <class Target>
struct NumberIn {
  using Type = Target;
};
template <class Number>
struct NumberIn<std::optional<Number>> {
  using Type = Number;
};

/// The options and arguments of a command, each declared once. The program makes its command line
/// and pages of them, the Python module its functions. They borrow their targets, whose values are
/// the defaults.
class Options {
 public:
  using Set = std::function<void(const std::string& word)>;

  /// The title over those that are declared next; one of kOptionGroups, or one of its own.
  void group(const std::string& title) { group_ = title; }

  /// names: "-o,--output"; without dashes an argument. The text must not be empty.
  Option& text(const std::string& names, std::string& target, const std::string& help);
  Option& text(const std::string& names, Set set, const std::string& help);
  Option& list(const std::string& names, std::vector<std::string>& target, const std::string& help);
  Option& flag(const std::string& names, bool& target, const std::string& help);
  Option& flag(const std::string& names, std::function<void(bool)> set, const std::string& help);
  /// Takes true or false.
  Option& boolean(const std::string& names, std::optional<bool>& target, const std::string& help);
  /// Numbers from 0 on, apart by spaces or commas.
  Option& numbers(const std::string& names, std::vector<int64_t>& target, const std::string& help);
  /// A number that has a text of its own, such as a size. set: throws Error for what is none, and
  /// is called for a check, too. python_type: what a call may give for it.
  Option& number_text(const std::string& names, Set set, const std::string& help,
                      const std::string& python_type);
  /// The text is kept; parse: throws Error for what is none.
  Option& number_text(const std::string& names, std::string& target, const std::string& help,
                      const Set& parse, const std::string& python_type);
  /// A number from least to most. target: a number, or an optional one.
  template <class Target, class Number = typename NumberIn<Target>::Type>
  Option& number(const std::string& names, Target& target, const std::string& help,
                 std::type_identity_t<Number> least, std::type_identity_t<Number> most) {
    Option& option = limited<Number>(names, help, least, most);
    option.read = [&target, least, most](const std::vector<std::string>& words) {
      Number value{};
      read_number(words.front(), least, most, value);
      target = value;
    };
    if constexpr (std::is_same_v<Number, Target>) option.default_value = text_of(target);
    return option;
  }

  /// Reads the arguments of a call from Python; null ones count as absent. Throws Error that names
  /// the argument. From then on messages say the names that Python knows.
  void read(const Json& arguments);
  /// Downloads what given values name. Throws Error, with the name of an option that is no
  /// argument.
  void fetch(Diagnostics& diagnostics) const;

  const std::vector<std::unique_ptr<Option>>& all() const { return options_; }
  const Option& at(const std::string& name) const;
  bool is_given(const std::string& name) const { return at(name).is_given; }
  /// "--kl-budget" as the caller knows it: "kl_budget" from Python.
  std::string shown(const std::string& name) const;
  /// Values that name what the command writes.
  std::vector<std::string> written_paths() const;

 private:
  template <class Number>
  static std::string text_of(Number value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }
  template <class Number>
  Option& limited(const std::string& names, const std::string& help, Number least, Number most) {
    constexpr double kMostTold = 1e6;  // above, it only keeps numbers from running over
    Option& option = add(names, help, ValueKind::kNumber);
    option.check = [least, most](const std::string& word) {
      Number value{};
      return read_number(word, least, most, value);
    };
    option.limits = static_cast<double>(most) < kMostTold ? text_of(least) + " to " + text_of(most)
                                                          : text_of(least) + " or more";
    option.python_type = std::is_floating_point_v<Number> ? "float" : "int";
    return option;
  }
  Option& add(const std::string& names, const std::string& help, ValueKind kind);

  std::string group_;
  std::vector<std::unique_ptr<Option>> options_;
  bool is_python_ = false;
};

/// The check of a text whose parse throws Error for what is none.
Option::Check check_of(Options::Set parse);

}  // namespace kvcal
