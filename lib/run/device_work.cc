#include "run/device_work.h"

#include <algorithm>

#include "core/number_text.h"
#include "core/text_table.h"

namespace kvcal {

std::vector<ProductChoice> product_choices_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<ProductChoice> all;
  for (const auto& backend : backends)
    for (ProductChoice& choice : backend->product_choices())
      if (std::ranges::find(all, choice) == all.end()) all.push_back(std::move(choice));
  return all;
}

std::vector<PartTime> part_times_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<PartTime> all;
  for (const auto& backend : backends)
    for (const PartTime& time : backend->part_times()) {
      const auto known = std::ranges::find(all, time.part, &PartTime::part);
      if (known == all.end())
        all.push_back(time);
      else
        known->seconds += time.seconds;
    }
  return all;
}

Json products_json(std::span<const ProductChoice> choices) {
  if (choices.empty()) return {};
  Json all = Json::array();
  for (const ProductChoice& choice : choices)
    all.push_back(
        {{"product", choice.product}, {"algorithm", choice.algorithm}, {"chosen", choice.reason}});
  return all;
}

std::string device_work_text(std::span<const ProductChoice> choices,
                             std::span<const PartTime> parts) {
  std::string text;
  if (!choices.empty()) {
    TextTable table({"product", "algorithm", "chosen"});
    for (const ProductChoice& choice : choices)
      table.add({choice.product, choice.algorithm, choice.reason});
    text += table.text();
  }
  double all = 0.0;
  for (const PartTime& time : parts) all += time.seconds;
  if (all > 0.0) {
    TextTable table({"device", "seconds", "share"});
    for (const PartTime& time : parts)
      table.add({time.part, fixed("%.3f", time.seconds), percent(time.seconds / all)});
    text += table.text();
  }
  return text;
}

}  // namespace kvcal
