#include "quant/observer.h"

#include <algorithm>

namespace kvcal {

// One row per observer: a file of observers/ defines <name>_observer(). A weight is observed once,
// as a whole, so static_minmax and minmax equal memoryless_minmax for it, and mse equals
// memoryless_mse. Source: llm-compressor `initialize_observer`. percentile, entropy and
// attention_mse are ours.
#define KVCAL_OBSERVERS(ROW) \
  ROW(static_minmax)         \
  ROW(minmax)                \
  ROW(memoryless_minmax)     \
  ROW(mse)                   \
  ROW(memoryless_mse)        \
  ROW(percentile)            \
  ROW(entropy)               \
  ROW(attention_mse)

#define KVCAL_DECLARE(name) ObserverRow name##_observer();
KVCAL_OBSERVERS(KVCAL_DECLARE)

namespace {

class ChoosingObserver : public Observer {
 public:
  ChoosingObserver(bool may_clip, ChooseAmax choose)
      : may_clip_(may_clip), choose_(std::move(choose)) {}
  bool may_clip() const override { return may_clip_; }

 private:
  Amax choose(const TensorStatistics& seen, const KvFormat& format) const override {
    return choose_(seen, format);
  }
  bool may_clip_;
  ChooseAmax choose_;
};

/// An observer of llm-compressor that kvcal does not support.
ObserverRow refused(std::string_view reason) {
  return {.why_not = {reason, reason, reason}};
}

constexpr std::string_view kImportance = "weighing errors by activations is not performed";
constexpr std::string_view kNvfp4 = "it belongs to NVFP4, which is outside FP8";

}  // namespace

std::unique_ptr<Observer> observer_by(bool may_clip, ChooseAmax choose) {
  return std::make_unique<ChoosingObserver>(may_clip, std::move(choose));
}

const Registry<ObserverRow>& observers() {
#define KVCAL_ENTRY(name) {#name, name##_observer()},
  static const Registry<ObserverRow> kTable{
      "observer",
      {KVCAL_OBSERVERS(KVCAL_ENTRY){"imatrix_mse", refused(kImportance)},
       {"nvfp4_expanded_mse", refused(kNvfp4)},
       {"nvfp4_expanded_imatrix", refused(kNvfp4)},
       {"fouroversix", refused(kNvfp4)}}};
  return kTable;
}

std::vector<std::string> observers_for(ArgsRole role) {
  std::vector<std::string> names;
  for (const auto& [name, row] : observers().rows())
    if (reason_for(row.why_not, role).empty()) names.push_back(name);
  return names;
}

Amax Observer::amax(const TensorStatistics& seen, const KvFormat& format) const {
  if (std::ranges::all_of(seen.ranges, &Range::empty)) fail("nothing was observed");
  return choose(seen, format);
}

std::unique_ptr<Observer> make_observer(const QuantArgs& args) {
  const std::string name =
      args.observer.value_or(std::string(default_observer(ArgsRole::kKvCache)));
  const ObserverRow& row = observers().at(name);
  if (!row.make) fail("observer '", name, "': ", reason_for(row.why_not, ArgsRole::kKvCache));
  return row.make(args.observer_kwargs);
}

}  // namespace kvcal
