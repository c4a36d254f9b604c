#include "arguments.h"

namespace kvcal {

void Arguments::read(const std::string& name, std::string& target) {
  read_.insert(name);
  const auto value = optional_string(values_, name);
  if (!value) return;
  if (value->empty()) fail(name, ": is empty");
  target = *value;
}

void Arguments::read(const std::string& name, bool& target) {
  read_.insert(name);
  target = optional_bool(values_, name).value_or(target);
}

void Arguments::read(const std::string& name, double& target, double least, double most) {
  read_.insert(name);
  const auto value = optional_number(values_, name);
  if (!value) return;
  if (*value < least || *value > most)
    fail(name, ": found ", *value, ", expected ", least, " to ", most);
  target = *value;
}

void Arguments::read(const std::string& name, std::vector<std::string>& target) {
  read_.insert(name);
  const Json* value = find_field(values_, name);
  if (!value) return;
  target.clear();
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    if (!item.is_string()) fail_kind(name, "a string or a list of strings", item);
    target.push_back(item.get<std::string>());
  }
}

void Arguments::read(const std::string& name, std::vector<int64_t>& target) {
  read_.insert(name);
  const Json* value = find_field(values_, name);
  if (!value) return;
  target.clear();
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0)
      fail_kind(name, "a number of 0 or more, or a list of such", item);
    target.push_back(item.get<int64_t>());
  }
}

void Arguments::read_text(const std::string& name, std::string& target) {
  const Json* value = find_field(values_, name);
  if (!value || !value->is_number()) return read(name, target);
  read_.insert(name);
  target = value->dump();
}

Json Arguments::read_json(const std::string& name) {
  read_.insert(name);
  const Json* value = find_field(values_, name);
  return value ? *value : Json(nullptr);
}

void Arguments::expect_all_read() const {
  for (const auto& item : values_.items())
    if (!item.value().is_null() && !read_.contains(item.key()))
      fail("unknown argument '", item.key(), "'");
}

std::optional<int64_t> Arguments::integer(const std::string& name, int64_t least, int64_t most) {
  read_.insert(name);
  const auto value = optional_int(values_, name);
  if (value && (*value < least || *value > most))
    fail(name, ": found ", *value, ", expected ", least, " to ", most);
  return value;
}

}  // namespace kvcal
