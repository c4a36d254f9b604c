#include "quant/mse_search.h"

#include <limits>
#include <string>

namespace kvcal {
namespace {

double number(const Json& kwargs, const std::string& key, double otherwise) {
  const auto found = kwargs.find(key);
  if (found == kwargs.end() || found->is_null()) return otherwise;
  if (!found->is_number())
    fail("observer_kwargs.", key, ": found ", found->dump(), ", expected a number");
  return found->get<double>();
}

void expect(bool is_good, const char* key, double found, const char* expected) {
  if (!is_good) fail("observer_kwargs.", key, ": found ", found, ", expected ", expected);
}

}  // namespace

MseOptions mse_options(const Json& observer_kwargs) {
  MseOptions options;
  options.maxshrink = number(observer_kwargs, "maxshrink", options.maxshrink);
  options.grid = number(observer_kwargs, "grid", options.grid);
  options.norm = number(observer_kwargs, "norm", options.norm);
  options.expand = number(observer_kwargs, "expand", options.expand);
  const double patience =
      number(observer_kwargs, "patience", static_cast<double>(options.patience));
  expect(options.maxshrink > 0 && options.maxshrink <= 1, "maxshrink", options.maxshrink,
         "a number above 0 and at most 1");
  expect(options.grid > 0 && options.grid <= 1e6, "grid", options.grid,
         "a number above 0 and at most 1000000");
  expect(options.norm > 0 && options.norm <= 100, "norm", options.norm,
         "a number above 0 and at most 100");
  expect(patience >= 1 && patience <= 1e9, "patience", patience, "1 or more");
  expect(options.expand >= 1 && options.expand <= 1e6, "expand", options.expand,
         "1 or more, at most 1000000");
  options.patience = static_cast<int64_t>(patience);
  return options;
}

RangeSearch::RangeSearch(const MseOptions& options, size_t groups)
    : options_(options),
      steps_(static_cast<int64_t>(options.maxshrink * options.grid)),
      best_(groups, 1.0f),
      least_errors_(groups, std::numeric_limits<float>::max()) {}

std::optional<float> RangeSearch::next() {
  if (step_ >= steps_ || steps_without_gain_ >= options_.patience) return std::nullopt;
  factor_ = static_cast<float>(1.0 - static_cast<double>(step_++) / options_.grid);
  return factor_;
}

void RangeSearch::tell(std::span<const double> errors) {
  KVCAL_CHECK(errors.size() == best_.size());
  bool has_gained = false;
  for (size_t group = 0; group < errors.size(); ++group) {
    if (!(errors[group] < least_errors_[group])) continue;
    least_errors_[group] = errors[group];
    best_[group] = factor_;
    has_gained = true;
  }
  steps_without_gain_ = has_gained ? 0 : steps_without_gain_ + 1;
}

}  // namespace kvcal
