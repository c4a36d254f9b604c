#include "quant/mse_search.h"

#include <limits>
#include <string>

#include "quant/setting_range.h"

namespace kvcal {
namespace {

double number(const Json& kwargs, const std::string& key, double otherwise) {
  const auto found = kwargs.find(key);
  if (found == kwargs.end() || found->is_null()) return otherwise;
  if (!found->is_number())
    fail("observer_kwargs.", key, ": found ", found->dump(), ", expected a number");
  return found->get<double>();
}

void check(const NumberRange& range, const char* key, double found) {
  if (!range.contains(found))
    fail("observer_kwargs.", key, ": found ", found, ", expected a number ",
         range.is_above ? "above " : "from ", static_cast<int64_t>(range.least), " to ",
         static_cast<int64_t>(range.most));
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
  check(kMaxshrinks, "maxshrink", options.maxshrink);
  check(kGrids, "grid", options.grid);
  check(kNorms, "norm", options.norm);
  check(kPatiences, "patience", patience);
  check(kExpands, "expand", options.expand);
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
