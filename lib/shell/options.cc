#include "shell/options.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/registry.h"
#include "core/text.h"

namespace kvcal {
namespace {

/// "kl_budget" for "--kl-budget".
std::string python_name_of(const std::string& name) {
  std::string result = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::ranges::replace(result, '-', '_');
  return result;
}

std::string check_not_empty(const std::string& word) {
  return word.empty() ? "is empty" : "";
}

/// A JSON value as the command line has it. name: for messages.
std::string word_of(const Option& option, const std::string& name, const Json& value) {
  const bool has_json = option.python_type.starts_with("dict");
  const bool is_string = option.python_type.find("str") != std::string::npos ||
                         option.python_type == "Path" || option.python_type == "Data" ||
                         option.python_type == "Names";
  const bool is_number = option.python_type == "Layers" ||
                         option.python_type.find("int") != std::string::npos ||
                         option.python_type.find("float") != std::string::npos;
  if (option.is_boolean ? value.is_boolean() : has_json || (is_number && value.is_number()))
    return value.dump();
  if (is_string && value.is_string()) return value.get<std::string>();
  fail_kind(name,
            option.is_boolean        ? "true or false"
            : is_string && is_number ? "a number or a string"
            : option.is_repeatable   ? is_number ? "a number of 0 or more, or a list of such"
                                                 : "a string or a list of strings"
            : is_number              ? "a number"
                                     : "a string",
            value);
}

std::vector<std::string> words_of(const Option& option, const Json& value) {
  std::vector<std::string> words;
  if (option.is_repeatable && value.is_array())
    for (const Json& item : value) words.push_back(word_of(option, option.python_name, item));
  else
    words.push_back(word_of(option, option.python_name, value));
  return words;
}

}  // namespace

void Option::give(const std::vector<std::string>& given) {
  read(given);
  words = given;
  is_given = !is_flag() || given.front() == "true";
}

Option& Option::of_kind(ValueKind of) {
  kind = of;
  if (python_type == "str" && of != ValueKind::kChoice) python_type = "Path";
  return *this;
}

namespace {

/// A message for a word that is none of some; empty: it is one. Case, '-' and '_' count only where
/// it has to be exact.
std::string unknown_choice(std::string_view word, const std::vector<std::string>& of,
                           bool is_exact = false) {
  const bool is_one = std::ranges::any_of(of, [&](const std::string& one) {
    return is_exact ? one == word : normalised_name(one) == normalised_name(word);
  });
  if (is_one) return "";
  return shown_name(word) + " is unknown" + did_you_mean(word, of) + "; known are " +
         join(of, ", ");
}

}  // namespace

Option& Option::choices_of(std::vector<std::string> of, bool joined) {
  kind = ValueKind::kChoice;
  check = [of, joined](const std::string& word) {
    const std::vector<std::string_view> parts =
        joined ? split(word, '+') : std::vector<std::string_view>{word};
    for (const std::string_view part : parts)
      if (const std::string fault = unknown_choice(part, of); !fault.empty()) return fault;
    return std::string();
  };
  choices = std::move(of);
  are_choices_joined = joined;
  return *this;
}

Option& Option::only(std::vector<std::string> of) {
  choices_of(of);
  check = [of](const std::string& word) {
    return std::ranges::find(of, word) == of.end() ? unknown_choice(word, of, /*is_exact=*/true)
                                                   : "";
  };
  return *this;
}

Option& Option::not_empty() {
  check = check_not_empty;
  return *this;
}

Option& Option::python(const std::string& name, const std::string& type, const std::string& value) {
  python_name = name;
  if (!type.empty()) python_type = type;
  python_default = value;
  return *this;
}

Option::Check check_of(Options::Set parse) {
  return [parse = std::move(parse)](const std::string& word) -> std::string {
    if (has_leading_zero(word)) return "found '" + word + "', expected no leading zero";
    try {
      parse(word);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
}

Option& Options::add(const std::string& names, const std::string& help, ValueKind kind) {
  Option& option = *options_.emplace_back(std::make_unique<Option>());
  for (const std::string_view name : split(names, ','))
    if (name.starts_with('-') || names.find('-') == std::string::npos)
      option.names.emplace_back(name);
  option.spelling = names;
  option.help = help;
  option.kind = kind;
  option.group = group_;
  option.python_name = python_name_of(option.names.back());
  option.has_place_in_python = option.is_argument();
  option.python_type = "str";
  return option;
}

Option& Options::text(const std::string& names, Set set, const std::string& help) {
  Option& option = add(names, help, ValueKind::kText);
  option.check = check_not_empty;
  option.read = [set = std::move(set)](const std::vector<std::string>& words) {
    set(words.front());
  };
  return option;
}

Option& Options::text(const std::string& names, std::string& target, const std::string& help) {
  return text(
             names, [&target](const std::string& word) { target = word; }, help)
      .shown_default(target);
}

Option& Options::list(const std::string& names, std::vector<std::string>& target,
                      const std::string& help) {
  Option& option = add(names, help, ValueKind::kText);
  option.is_repeatable = true;
  option.python_type = "Names";
  option.read = [&target](const std::vector<std::string>& words) { target = words; };
  return option;
}

Option& Options::flag(const std::string& names, std::function<void(bool)> set,
                      const std::string& help) {
  Option& option = add(names, help, ValueKind::kNone);
  option.is_boolean = true;
  option.python_type = "bool";
  option.python_default = "False";
  option.read = [set = std::move(set)](const std::vector<std::string>& words) {
    set(words.front() == "true");
  };
  return option;
}

Option& Options::flag(const std::string& names, bool& target, const std::string& help) {
  return flag(
      names, [&target](bool is_on) { target = is_on; }, help);
}

Option& Options::boolean(const std::string& names, std::optional<bool>& target,
                         const std::string& help) {
  Option& option = add(names, help, ValueKind::kChoice).choices_of({"true", "false"});
  option.is_boolean = true;
  option.python_type = "bool";
  option.read = [&target](const std::vector<std::string>& words) {
    target = words.front() == "true";
  };
  return option;
}

Option& Options::numbers(const std::string& names, std::vector<int64_t>& target,
                         const std::string& help) {
  constexpr int64_t kMost = int64_t{1} << 30;
  Option& option = limited<int64_t>(names, help, 0, kMost);
  option.is_repeatable = true;
  option.delimiter = ',';
  option.python_type = "Layers";
  option.read = [&target](const std::vector<std::string>& words) {
    target.clear();
    for (const std::string& word : words)
      read_number<int64_t>(word, 0, kMost, target.emplace_back());
  };
  return option;
}

Option& Options::number_text(const std::string& names, Set set, const std::string& help,
                             const std::string& python_type) {
  Option& option = text(names, set, help);
  option.kind = ValueKind::kNumber;
  option.check = check_of(std::move(set));
  option.python_type = python_type;
  return option;
}

Option& Options::number_text(const std::string& names, std::string& target, const std::string& help,
                             const Set& parse, const std::string& python_type) {
  Option& option = text(names, target, help);
  option.kind = ValueKind::kNumber;
  option.check = check_of(parse);
  option.python_type = python_type;
  return option;
}

void Options::read(const Json& arguments) {
  is_python_ = true;
  std::vector<std::pair<Option*, std::vector<std::string>>> given;
  for (const auto& [name, value] : arguments.items()) {
    if (value.is_null()) continue;
    const auto option = std::ranges::find_if(options_, [&name = name](const auto& one) {
      return !name.empty() && one->python_name == name;
    });
    if (option == options_.end()) fail("unknown argument '", name, "'");
    given.emplace_back(option->get(), words_of(**option, value));
    (*option)->is_given = !(*option)->is_flag() || value == true;
  }
  for (const auto& [option, words] : given) {
    for (const std::string& other : option->excluded)
      if (option->is_given && is_given(other))
        fail(option->python_name, " excludes ", shown(other));
    if (option->is_given && !option->needed.empty() && !is_given(option->needed))
      fail(option->python_name, " requires ", shown(option->needed));
    for (const std::string& word : words)
      if (const std::string fault = option->check ? option->check(word) : ""; !fault.empty())
        fail(option->python_name, ": ", fault);
    option->give(words);
  }
  for (const auto& option : options_)
    if (option->is_required && !option->is_given && !option->python_name.empty())
      fail(option->python_name, ": is missing");
}

void Options::fetch(Diagnostics& diagnostics) const {
  for (const auto& option : options_) {
    if (!option->fetch || !option->is_given) continue;
    if (option->is_argument())
      option->fetch(diagnostics);
    else
      in_context(shown(option->name()), [&] { option->fetch(diagnostics); });
  }
}

const Option& Options::at(const std::string& name) const {
  const auto option =
      std::ranges::find_if(options_, [&](const auto& one) { return one->name() == name; });
  KVCAL_CHECK(option != options_.end());
  return **option;
}

std::string Options::shown(const std::string& name) const {
  return is_python_ ? at(name).python_name : name;
}

std::vector<std::string> Options::written_paths() const {
  std::vector<std::string> paths;
  for (const auto& option : options_)
    if (option->is_written) paths.insert(paths.end(), option->words.begin(), option->words.end());
  return paths;
}

}  // namespace kvcal
